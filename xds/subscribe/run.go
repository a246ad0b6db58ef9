package subscribe

import (
	"context"
	"log/slog"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/xds"
)

// quietAfter is how long a stream stays open to count as a good one, see [xds.SteadyAfter], when nothing is exchanged: a
// client that is up to date is sent nothing.
const quietAfter = 10 * time.Second

// tellEvery is how often a lost stream is logged while it stays lost.
const tellEvery = time.Minute

// Run puts the last good sets in force, then follows the control plane until ctx ends, and returns nil. While the control
// plane is away it tries again, and the rules stay in force.
func (c *Client) Run(ctx context.Context) error {
	c.Restore()
	c.unsaved = false // it came from the disk
	defer c.startSaver()()
	wait := xds.NewReconnect()
	var told teller
	for {
		s := &session{client: c, steps: map[string]*step{}}
		err := s.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s.good() {
			wait.Reset()
		}
		if c.Trouble() == nil {
			told = teller{} // it stood, be it for a moment
		}
		c.lost(err)
		pause := wait.NextBackOff()
		level := slog.LevelDebug // a try that fails like the one before is no news, but an outage is to be heard of
		if told.news(err.Error()) {
			level = slog.LevelWarn
		}
		message := "no stream to the control plane: the rules stay in force"
		if !c.Ready() {
			message = "no stream to the control plane, and no rules in force yet"
		}
		c.log.Log(ctx, level, message, "err", err, "wait", pause) //nolint:sloglint // one of two constants
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// teller knows what was said of an outage.
type teller struct {
	reason string
	at     time.Time
}

// news reports whether the reason is to be told: it is another one, or was told long ago. The port from which a try was
// made is another each time, and no news; nor is which of two steps ("subscribe: …", "receive: …") met a refusal.
func (t *teller) news(reason string) bool {
	if _, why, ok := strings.Cut(reason, ": "); ok {
		reason = why
	}
	reason = strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, reason)
	if reason == t.reason && time.Since(t.at) < tellEvery {
		return false
	}
	*t = teller{reason, time.Now()}
	return true
}

// lost keeps why a stream ended.
func (c *Client) lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = err
}

// stands ends an outage, which is told of. The rules may be as they were, or of another history, so that nothing else is
// heard of the control plane.
//
// It is called when a stream has lasted: a refusal comes after it was opened.
func (c *Client) stands() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.trouble == nil {
		return
	}
	c.trouble = nil
	c.log.Info("connected to the control plane")
}
