package ui

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/rules"
)

const (
	// livePoll is how often a page that somebody looks at is loaded again. Sidecars report every second, so that a refusal
	// is on the screen within two.
	livePoll = 500 * time.Millisecond
	// maxStreams bounds the pages that are followed at a time, and maxStreamsOf those of one credential: nobody takes all.
	maxStreams   = 512
	maxStreamsOf = 64
	// full is after which time a browser asks again for a stream that there was no room for.
	full = 10 * time.Second
	// writeTime is how long a browser may take to read what it is sent; a stream that is read slower ends.
	writeTime = 10 * time.Second
	// stillKnown is how often the caller of a stream is looked at again.
	stillKnown = 5 * time.Second
)

// feeds are the pages that are being followed. Those who show the same credential share one.
type feeds struct {
	mu      sync.Mutex
	by      map[string]*feed
	of      map[string]int // streams by credential
	streams int
}

// feed loads one page again and again, for as long as somebody follows it.
type feed struct {
	followers map[chan struct{}]struct{}
	stop      context.CancelFunc
	parts     map[string]part
	failed    string // why it could not be loaded the last time
}

// part is what a live part shows, and a number that grows with each change of it.
type part struct {
	html   string
	change int
}

// stream sends the live parts of a page as server-sent events: each at first, and then whenever it has changed. The name
// of an event is the id of the element that it fills. "trouble" says why nothing can be shown now, or nothing; "here" only
// that the connection is, and "ended" that the caller is not known any more.
func (u *UI) stream(w http.ResponseWriter, r *http.Request, s *shape, l load) {
	if len(s.live) == 0 {
		http.Error(w, "nothing of this page is live", http.StatusNotAcceptable)
		return
	}
	if _, err := newRequest(r); err != nil {
		http.Error(w, err.Error(), failureOf(err).Status)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(writeTime)) // where there are none, there is no slow reader either
	f, changed, leave, err := u.follow(r, s, l)
	if err != nil {
		_, _ = fmt.Fprintf(w, "retry: %d\n", full.Milliseconds())
		_ = event(w, "trouble", sentence(err))
		return
	}
	defer leave()
	check := time.NewTicker(stillKnown)
	defer check.Stop()
	sent, trouble := map[string]int{}, ""
	for {
		select {
		case <-r.Context().Done():
			return
		case <-u.stopped:
			return
		case <-check.C:
			_ = out.SetWriteDeadline(time.Now().Add(writeTime))
			if u.door != nil && u.door.StillKnown(r.Context(), r) != nil {
				_ = event(w, "ended", "")
				return
			}
			if event(w, "here", "") != nil {
				return
			}
		case <-changed:
			_ = out.SetWriteDeadline(time.Now().Add(writeTime))
			parts, failed := u.feeds.read(f)
			if failed != trouble {
				trouble = failed
				if event(w, "trouble", trouble) != nil {
					return
				}
			}
			for _, name := range s.live {
				if p, ok := parts[name]; ok && p.change != sent[name] {
					sent[name] = p.change
					if event(w, name, p.html) != nil {
						return
					}
				}
			}
		}
		if out.Flush() != nil {
			return
		}
	}
}

// ends are all that ends a line of an event: a carriage return alone does too, so that one in a text that somebody wrote
// could begin an event of theirs.
var ends = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// event writes one event as in the HTML standard, section 9.2.
func event(w io.Writer, name, data string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "event: %s\n", name)
	for line := range strings.Lines(ends.Replace(data)) {
		b.WriteString("data: " + strings.TrimSuffix(line, "\n") + "\n")
	}
	if data == "" {
		b.WriteString("data:\n")
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// follow joins the feed of a page, or begins it. What it returns is told of each change, and leaves the feed.
func (u *UI) follow(r *http.Request, s *shape, l load) (*feed, <-chan struct{}, func(), error) {
	who, _ := newRequest(r)
	key := fmt.Sprintf("%s\x00%s\x00%s\x00%s\x00%q", who.Who.Credential, who.Who.Name, who.Who.Role, r.URL.RequestURI(), who.Who.Domains)
	all := &u.feeds
	all.mu.Lock()
	defer all.mu.Unlock()
	switch mine := who.Who.Credential; {
	case mine != "" && all.of[mine] >= maxStreamsOf:
		return nil, nil, nil, fmt.Errorf("%w: %d pages are followed with your token already: close some, or reload this one to see what is new", rules.ErrUnavailable, maxStreamsOf)
	case all.streams >= maxStreams:
		return nil, nil, nil, fmt.Errorf("%w: %d pages are followed already: reload this one to see what is new", rules.ErrUnavailable, maxStreams)
	case all.by == nil:
		all.by, all.of = map[string]*feed{}, map[string]int{}
	}
	all.streams++
	all.of[who.Who.Credential]++
	f := all.by[key]
	if f == nil {
		// The request of the first follower is what is loaded again, and must outlive it.
		ctx, stop := context.WithCancel(context.WithoutCancel(r.Context()))
		f = &feed{followers: map[chan struct{}]struct{}{}, stop: stop, parts: map[string]part{}}
		all.by[key] = f
		go u.load(r.WithContext(ctx), f, s, l)
	}
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // what is there already
	f.followers[changed] = struct{}{}
	return f, changed, func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.streams--
		if all.of[who.Who.Credential]--; all.of[who.Who.Credential] == 0 {
			delete(all.of, who.Who.Credential)
		}
		if delete(f.followers, changed); len(f.followers) == 0 {
			f.stop()
			delete(all.by, key)
		}
	}, nil
}

// load runs until nobody follows.
func (u *UI) load(r *http.Request, f *feed, s *shape, l load) {
	tick := time.NewTicker(livePoll)
	defer tick.Stop()
	for {
		frame, err := u.frame(arrive(r), l)
		if r.Context().Err() != nil {
			return
		}
		fresh, failed := u.fresh(s, frame, err)
		u.feeds.update(f, fresh, failed)
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// fresh makes the parts of a page that was loaded, and says why some are missing.
func (u *UI) fresh(s *shape, frame *frame, err error) (parts map[string]string, failed string) {
	if err != nil {
		return nil, failureOf(err).Text
	}
	parts = make(map[string]string, len(s.live))
	for _, name := range s.live {
		html, err := s.part(name, frame)
		if err != nil {
			u.log.Error("live part not made", "part", name, "err", err)
			failed = "This could not be shown; the control plane's log says why."
			continue
		}
		parts[name] = html
	}
	return parts, failed
}

// update takes over what is new, and tells those who follow.
func (all *feeds) update(f *feed, fresh map[string]string, failed string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	changed := failed != f.failed
	f.failed = failed
	for name, html := range fresh {
		if was := f.parts[name]; was.html != html {
			f.parts[name], changed = part{html, was.change + 1}, true
		}
	}
	if !changed {
		return
	}
	for follower := range f.followers {
		select {
		case follower <- struct{}{}:
		default: // it has not read the last change yet, and reads this one with it
		}
	}
}

func (all *feeds) read(f *feed) (parts map[string]part, failed string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	parts = make(map[string]part, len(f.parts))
	for name, p := range f.parts {
		parts[name] = p
	}
	return parts, f.failed
}
