package tally

import "time"

// Progress is how far the windows of a source are stored: what makes each of them count once.
type Progress struct {
	Source
	// Stored is the number of the last window that is stored; 0: none is.
	Stored int64
	// Began is when the first of them began, and Until when the last of them ended.
	Began, Until time.Time
	// Stopped says that the last of them was the source's last.
	Stopped bool
}

// Take moves on over windows in the order of their numbers. It returns those that are not stored yet, and the gaps that
// the numbers leave: what lies below a number that is stored never comes.
func (p *Progress) Take(windows []Window) (fresh []Window, gaps []Missing) {
	for i := range windows {
		w := &windows[i]
		if w.Number <= p.Stored {
			continue
		}
		if skipped := w.Number - p.Stored - 1; skipped > 0 {
			gaps = append(gaps, Missing{Source: p.Source, From: p.gapFrom(w, skipped), To: w.Start, Windows: skipped})
		}
		if p.Stored == 0 {
			p.Began = w.Start
		}
		p.Stored, p.Until, p.Stopped = w.Number, w.End, w.Last
		fresh = append(fresh, *w)
	}
	return fresh, gaps
}

// gapFrom is when a gap before a window began. Before the first window that is stored nobody knows, and as many windows
// of the usual length are taken for it (a year of them at most).
func (p *Progress) gapFrom(w *Window, skipped int64) time.Time {
	if p.Stored > 0 {
		return p.Until
	}
	const year = int64(366 * 24 * time.Hour / Span)
	return w.Start.Add(-time.Duration(min(skipped, year)) * Span)
}

// Left returns what is missing of a source that was not stopped, when the next source of the same node began: nobody
// knows how much.
func (p *Progress) Left(next time.Time) Missing {
	m := Missing{Source: p.Source, From: p.Until, To: next}
	if m.To.Before(m.From) {
		m.To = m.From
	}
	return m
}

// Shows reports whether totals of an open window with the number belong beside what is stored: it is the next one, and
// nothing before it is still to come. So a sum of both never shrinks when a window closes.
func (p *Progress) Shows(number int64) bool { return number == p.Stored+1 && !p.Stopped }
