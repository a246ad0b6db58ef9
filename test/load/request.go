package load

import (
	"fmt"
	"strconv"
	"strings"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/xds"
)

var streamDesc = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

const streamMethod = discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName

// everything is how a subscriber asks a cache that knows no domains for all it has.
const everything = "*"

func firstRequest(node string, o Connect) *discovery.DeltaDiscoveryRequest {
	request := &discovery.DeltaDiscoveryRequest{
		Node:    &core.Node{Id: node, UserAgentName: "fanout"},
		TypeUrl: xds.TypeURL, ResourceNamesSubscribe: []string{everything},
	}
	if o.Domain != "" {
		request.ResourceNamesSubscribe = []string{o.Domain}
	}
	if o.Holds != "" {
		request.InitialResourceVersions = map[string]string{o.Domain: o.Holds}
	}
	return request
}

func acknowledgement(nonce string) *discovery.DeltaDiscoveryRequest {
	return &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResponseNonce: nonce}
}

// commits returns the revision that the response ends with; 0 for a part of one. Without domains every response is whole,
// and its version ends in a number.
func (o Connect) commits(r *response) (int64, error) {
	if o.Domain == "" {
		_, number, _ := strings.Cut(r.version, "@")
		return strconv.ParseInt(number, 10, 64)
	}
	if r.resources == 0 {
		return 0, nil // this control plane does not know the domain yet
	}
	if domain, rule := xds.SplitName(r.last.name); domain != o.Domain {
		return 0, fmt.Errorf("a response ends with %q", r.last.name)
	} else if rule != "" {
		return 0, nil
	}
	_, revision, ok := xds.ParseDomainVersion(r.last.version)
	if !ok {
		return 0, fmt.Errorf("a domain has the version %q", r.last.version)
	}
	return revision, nil
}
