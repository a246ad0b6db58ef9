package rls

import (
	"fmt"
	"math"
	"sync"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// The bounds of a call. Envoy sends a descriptor for each rate_limits entry of a route, seldom more than ten, with an entry
// for each of its actions; values come from headers, of which Envoy takes 60 KiB.
const (
	maxDescriptors = 64
	maxEntries     = 64
	maxKey         = 256
	maxValue       = 64 << 10
)

// call is the working memory of one call. It is used again: nothing may keep it.
type call struct {
	reqs       []*rules.Request
	statuses   []enforce.Status
	attributes []map[string]string // of each descriptor
}

var calls = sync.Pool{New: func() any { return &call{} }}

func newCall() *call {
	c, _ := calls.Get().(*call)
	return c
}

// release forgets all values: some are secrets.
func (c *call) release() {
	for _, a := range c.attributes[:len(c.reqs)] {
		clear(a)
	}
	clear(c.reqs)
	c.reqs, c.statuses = c.reqs[:0], c.statuses[:0]
	calls.Put(c)
}

// read makes the requests, or says what is wrong. The text has no values.
func (c *call) read(req *ratelimitv3.RateLimitRequest) (problem string) {
	switch n := len(req.GetDescriptors()); {
	case req.GetDomain() == "":
		return "the domain is empty: name the domain whose rules apply"
	case n == 0:
		return "there is no descriptor: send at least one"
	case n > maxDescriptors:
		return fmt.Sprintf("%d descriptors are too many: send at most %d", n, maxDescriptors)
	}
	for i, d := range req.GetDescriptors() {
		if problem := c.add(req, d); problem != "" {
			return fmt.Sprintf("descriptor %d: %s", i+1, problem)
		}
	}
	return ""
}

func (c *call) add(req *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor) (problem string) {
	if n := len(d.GetEntries()); n == 0 || n > maxEntries {
		return fmt.Sprintf("it has %d entries: 1 to %d are right", n, maxEntries)
	}
	at := len(c.reqs)
	if at == len(c.attributes) {
		c.attributes = append(c.attributes, make(map[string]string, len(d.GetEntries())))
	}
	attributes := c.attributes[at]
	c.reqs = append(c.reqs, nil) // so that what follows is forgotten, whatever it is
	for i, e := range d.GetEntries() {
		key, value := e.GetKey(), e.GetValue()
		switch {
		case key == "" || len(key) > maxKey:
			return fmt.Sprintf("entry %d: its key has %d bytes: 1 to %d are right", i+1, len(key), maxKey)
		case len(value) > maxValue:
			return fmt.Sprintf("entry %d: its value has %d bytes: at most %d are right", i+1, len(value), maxValue)
		}
		if _, twice := attributes[key]; !twice {
			attributes[key] = value
		}
	}
	given, problem := givenRate(d.GetLimit())
	if problem != "" {
		return problem
	}
	c.reqs[at] = rules.FromDescriptor(req.GetDomain(), attributes, hits(req, d))
	c.reqs[at].Given = given
	c.statuses = append(c.statuses, enforce.Status{})
	return ""
}

// hits returns the descriptor's own number, which may be 0, to look without spending; else the request's, where 0 is what
// Envoy sends when it means 1. Negative hits give back.
func hits(req *ratelimitv3.RateLimitRequest, d *commonv3.RateLimitDescriptor) int64 {
	n := max(1, int64(req.GetHitsAddend()))
	if own := d.GetHitsAddend(); own != nil {
		n = int64(min(own.GetValue(), math.MaxInt64))
	}
	if d.GetIsNegativeHits() {
		return -n
	}
	return n
}

// givenRate returns the rate that the descriptor brings along; nil where it brings none.
func givenRate(o *commonv3.RateLimitDescriptor_RateLimitOverride) (_ *rules.Rate, problem string) {
	if o == nil {
		return nil, ""
	}
	unit := lengthOf(o.GetUnit())
	if unit == 0 {
		return nil, "its limit has no known unit: use SECOND, MINUTE, HOUR, DAY, MONTH or YEAR"
	}
	multiplier := int64(1)
	if m := o.GetUnitMultiplier(); m != nil {
		multiplier = int64(m.GetValue())
	}
	if multiplier < 1 || multiplier > int64(rules.MaxWindow/unit) {
		return nil, "its limit has a unit_multiplier that makes no window from 1s to 366d"
	}
	rate, err := rules.GivenRate(int64(o.GetRequestsPerUnit()), time.Duration(multiplier)*unit)
	if err != nil {
		return nil, err.Error()
	}
	return &rate, ""
}

const day = 24 * time.Hour

// lengthOf returns the length of a unit; 0 for one that is not known.
func lengthOf(unit typev3.RateLimitUnit) time.Duration {
	switch unit {
	case typev3.RateLimitUnit_SECOND:
		return time.Second
	case typev3.RateLimitUnit_MINUTE:
		return time.Minute
	case typev3.RateLimitUnit_HOUR:
		return time.Hour
	case typev3.RateLimitUnit_DAY:
		return day
	case typev3.RateLimitUnit_MONTH:
		return 30 * day
	case typev3.RateLimitUnit_YEAR:
		return 365 * day
	}
	return 0
}
