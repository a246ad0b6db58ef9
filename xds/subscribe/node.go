package subscribe

import (
	"encoding/json"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/xds"
)

// ReportBreakGlass has the control plane told of the freezes made at this sidecar, since Options.BreakGlass returns
// something else than before. It does not wait: where no stream is open, the next one begins with them.
func (c *Client) ReportBreakGlass() {
	select {
	case c.brokenGlass <- struct{}{}:
	default: // a token is there already
	}
}

// metadata is what the node says of itself: all of it in the first request of a stream, later only what changes.
func (c *Client) metadata(first bool) *structpb.Struct {
	fields := map[string]*structpb.Value{}
	if first {
		fields[xds.InstanceField] = structpb.NewStringValue(c.instance)
		fields[xds.LevelField] = structpb.NewStringValue(strconv.Itoa(xds.FeatureLevel))
		fields[xds.StreamField] = structpb.NewStringValue(strconv.FormatInt(c.streams, 10))
	}
	if c.o.BreakGlass != nil {
		fields[xds.BreakGlassField] = structpb.NewStringValue(c.breakGlass())
	}
	return &structpb.Struct{Fields: fields}
}

// breakGlass is the JSON of the newest reports, as many as fit.
func (c *Client) breakGlass() string {
	reports := c.o.BreakGlass()
	for n := min(len(reports), xds.MaxBreakGlass); n > 0; n-- {
		if b, err := json.Marshal(reports[:n]); err == nil && len(b) <= xds.MaxBreakGlassBytes {
			return string(b)
		}
	}
	return "[]"
}
