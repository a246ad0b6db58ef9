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

// breakGlass is the JSON of the newest reports, as many as fit. Of the others the log tells, once for each that is new.
func (c *Client) breakGlass() string {
	reports := c.o.BreakGlass()
	text, n := "[]", min(len(reports), xds.MaxBreakGlass)
	for ; n > 0; n-- {
		if b, err := json.Marshal(reports[:n]); err == nil && len(b) <= xds.MaxBreakGlassBytes {
			text = string(b)
			break
		}
	}
	for _, b := range reports[n:] {
		if b.ID == c.unreported {
			break
		}
		c.log.Warn("break-glass report is not made: there are too many newer ones",
			"id", b.ID, "at", b.At, "domain", b.Domain, "rule", b.Freeze.Rule, "until", b.Freeze.Until, "actor", b.Actor)
	}
	if n < len(reports) {
		c.unreported = reports[n].ID
	}
	return text
}
