// Package answer turns a decision into what its caller gets, the same at every door: the status, the headers about
// limits, when to try again, and the body of a refusal.
//
// The headers are those of draft-ietf-httpapi-ratelimit-headers-11: RateLimit-Policy and RateLimit, each a structured
// field (RFC 9651) with one item, the limit that speaks. An allowed call against 600/min burst 1200 is told
//
//	RateLimit-Policy: "api-key-plan";q=600;w=60;headgate-burst=1200
//	RateLimit: "api-key-plan";r=1199;t=1
//
// where t is the time until r grows. A refused one is told `r=0;t=7` and `Retry-After: 7`: the same call passes then, if
// nothing else is spent, and not a second earlier.
package answer

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
)

// A Field is a header. The name is spelt as in the documents that define it; HTTP/1 callers see it so.
type Field struct {
	Name, Value string
}

// Fields adds to a list what the decision tells its caller about limits: nothing where the rule hides it, or no limit
// speaks.
func Fields(list []Field, d *enforce.Decision) []Field {
	if d.HideHeaders {
		return list
	}
	seconds, waits := RetryAfter(d)
	if waits {
		list = append(list, Field{"Retry-After", strconv.FormatInt(seconds, 10)})
	}
	if d.Rate.Window == 0 {
		return list
	}
	if d.Allowed && d.Wait > 0 {
		seconds, waits = wholeSeconds(d.Wait), true
	}
	if d.Headers != rules.HeadersLegacy {
		list = append(list, Field{"RateLimit-Policy", policy(d)}, Field{"RateLimit", limit(d, seconds, waits)})
	}
	if d.Headers == rules.HeadersLegacy || d.Headers == rules.HeadersBoth {
		list = append(list,
			Field{"X-RateLimit-Limit", strconv.FormatInt(d.Rate.Amount, 10)},
			Field{"X-RateLimit-Remaining", strconv.FormatInt(d.Left, 10)})
		if waits {
			list = append(list, Field{"X-RateLimit-Reset", strconv.FormatInt(seconds, 10)})
		}
	}
	return list
}

// RetryAfter returns after how many whole seconds a refused call passes if nothing else is spent: rounded up, never 0. It
// reports false where waiting cannot help, the rule does not tell, or nothing was refused.
func RetryAfter(d *enforce.Decision) (seconds int64, tell bool) {
	if d.Allowed || d.HideHeaders || d.Wait == enforce.Never {
		return 0, false
	}
	return wholeSeconds(d.Wait), true
}

func wholeSeconds(wait time.Duration) int64 {
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	return max(1, seconds)
}

// name starts an item of a structured field. Names of rules and limits need no escapes in it.
func name(d *enforce.Decision) []byte {
	b := append(make([]byte, 0, 96), '"')
	b = append(b, d.Rule...)
	if d.Limit != "" {
		b = append(append(b, '/'), d.Limit...)
	}
	return append(b, '"')
}

func parameter(b []byte, key string, value int64) []byte {
	b = append(append(append(b, ';'), key...), '=')
	return strconv.AppendInt(b, value, 10)
}

func policy(d *enforce.Decision) string {
	b := parameter(name(d), "q", d.Rate.Amount)
	b = parameter(b, "w", int64(d.Rate.Window/time.Second))
	if d.Rate.Burst != d.Rate.Amount {
		b = parameter(b, "headgate-burst", d.Rate.Burst)
	}
	return string(b)
}

func limit(d *enforce.Decision, seconds int64, waits bool) string {
	b := parameter(name(d), "r", d.Left)
	if waits {
		b = parameter(b, "t", seconds)
	}
	return string(b)
}

// Add puts the fields of a decision beside the headers that are there. RateLimit and RateLimit-Policy are lists, in which
// a service behind the door may name limits of its own; the older headers can tell of one limit only, which is ours.
func Add(h http.Header, d *enforce.Decision) {
	var buffer [6]Field
	for _, f := range Fields(buffer[:0], d) {
		if strings.HasPrefix(f.Name, "X-") {
			h.Del(f.Name)
		}
		h[f.Name] = append(h[f.Name], f.Value)
	}
}
