package deploy_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	filterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // named in the file
	managerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // named in the file
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/rls"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// readEnvoy decodes the example as Envoy does: a field that it does not know is an error.
func readEnvoy(t *testing.T) *bootstrapv3.Bootstrap {
	t.Helper()
	content, err := os.ReadFile("examples/envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := yaml.Unmarshal(content, &tree); err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	config := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(asJSON, config); err != nil {
		t.Fatal(err)
	}
	return config
}

// eachMessage visits the message and all within it, also those packed as Any.
func eachMessage(t *testing.T, m proto.Message, visit func(proto.Message)) {
	t.Helper()
	visit(m)
	if packed, ok := m.(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		if err != nil {
			t.Fatal(err)
		}
		eachMessage(t, inner, visit)
		return
	}
	m.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			value.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				if field.MapValue().Message() != nil {
					eachMessage(t, v.Message().Interface(), visit)
				}
				return true
			})
		case field.Message() == nil:
		case field.IsList():
			for i := range value.List().Len() {
				eachMessage(t, value.List().Get(i).Message().Interface(), visit)
			}
		default:
			eachMessage(t, value.Message().Interface(), visit)
		}
		return true
	})
}

// The example keeps to all rules of Envoy's API, and names only clusters that it has.
func TestEnvoyExampleIsValid(t *testing.T) {
	t.Parallel()
	clusters, used := map[string]bool{}, map[string]bool{}
	config := readEnvoy(t)
	for _, c := range config.GetStaticResources().GetClusters() {
		clusters[c.GetName()] = true
	}
	eachMessage(t, config, func(m proto.Message) {
		if checked, ok := m.(interface{ ValidateAll() error }); ok {
			if err := checked.ValidateAll(); err != nil {
				t.Error(err)
			}
		}
		switch m := m.(type) {
		case *routev3.RouteAction:
			used[m.GetCluster()] = true
		case *filterv3.RateLimit:
			used[m.GetRateLimitService().GetGrpcService().GetEnvoyGrpc().GetClusterName()] = true
		}
	})
	if diff := cmp.Diff(clusters, used); diff != "" {
		t.Errorf("clusters (-there +used):\n%s", diff)
	}
}

// What the example's Envoy asks is limited by the rules beside it.
func TestEnvoyExampleMeetsItsRules(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("examples/envoy-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sets, err := rulefile.Decode("envoy-rules.yaml", content)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range sets[0].Rules {
		if r.Spec.Response.Status != 0 || r.Spec.Response.Title != "" {
			t.Errorf("%s: response %+v cannot travel through Envoy", r.Name, r.Spec.Response)
		}
	}
	engine := enforce.NewEngine(memlimit.New(), nobody{}, slog.New(slog.DiscardHandler))
	engine.Swap(rules.NewIndex(replay.NewDomain(&sets[0]), replay.NewRules(&sets[0], nil)))
	door := rls.New(engine, rpcstatus.UnaryServer(slog.New(slog.DiscardHandler), nil), nil)
	req := &ratelimitv3.RateLimitRequest{}
	eachMessage(t, readEnvoy(t), func(m proto.Message) {
		switch m := m.(type) {
		case *filterv3.RateLimit:
			req.Domain = m.GetDomain()
		case *managerv3.HttpConnectionManager:
			for _, limit := range m.GetRouteConfig().GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetRateLimits() {
				req.Descriptors = append(req.Descriptors, descriptor(t, limit, map[string]string{
					":method": "GET", ":path": "/v1/export?all=1", "x-tenant": "a",
				}))
			}
		}
	})
	response, err := door.ShouldRateLimit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]uint32{}
	for _, s := range response.GetStatuses() {
		left[s.GetCurrentLimit().GetName()] = s.GetLimitRemaining()
	}
	if diff := cmp.Diff(map[string]uint32{"by-address": 1199, "by-tenant": 1900}, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// descriptor is what Envoy makes of a rate_limits entry for a request with these headers.
func descriptor(t *testing.T, limit *routev3.RateLimit, headers map[string]string) *commonv3.RateLimitDescriptor {
	t.Helper()
	d := &commonv3.RateLimitDescriptor{}
	for _, action := range limit.GetActions() {
		e := &commonv3.RateLimitDescriptor_Entry{}
		switch {
		case action.GetRemoteAddress() != nil:
			e.Key, e.Value = "remote_address", "192.0.2.1"
		case action.GetRequestHeaders() != nil:
			h := action.GetRequestHeaders()
			e.Key, e.Value = h.GetDescriptorKey(), headers[h.GetHeaderName()]
		default:
			t.Fatalf("an action this test does not know: %v", action)
		}
		d.Entries = append(d.Entries, e)
	}
	return d
}

// nobody records nothing.
type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}
