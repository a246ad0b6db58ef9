package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/headgate/headgate/cmd/rulectl/backtest"
)

// backtestText is a result for people: what was read, a table of the rules, and the keys that were refused most.
func backtestText(r *backtest.Result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d malformed, %d out of order", count(r.Lines, "line"), r.Malformed, r.OutOfOrder)
	if r.Unseen > 0 {
		fmt.Fprintf(&b, ", %d answered with 400", r.Unseen)
	}
	b.WriteString("\n")
	if r.Requests > 0 {
		fmt.Fprintf(&b, "%s from %s to %s: %d refused (%s)\n", count(r.Requests, "request"), instant(r.First), instant(r.Last),
			r.Refused, share(r.Refused, r.Requests))
	}
	b.WriteString("\n")
	b.WriteString(backtestRules(r))
	if worst := backtestKeys(r); worst != "" {
		b.WriteString("\nworst keys\n" + worst)
	}
	return b.String()
}

func backtestRules(r *backtest.Result) string {
	var rows [][]string
	for i := range r.Rules {
		rule := &r.Rules[i]
		rows = append(rows, []string{
			rule.Rule, fmt.Sprint(rule.Matched), fmt.Sprint(rule.Refused), share(rule.Refused, rule.Matched),
			fmt.Sprint(rule.Keys), fmt.Sprint(rule.RefusedKeys), spark(rule.OverTime),
		})
	}
	return renderTable([]string{"RULE", "MATCHED", "REFUSED", "SHARE", "KEYS", "REFUSED KEYS", "REFUSED OVER TIME"}, rows,
		"MATCHED", "REFUSED", "SHARE", "KEYS", "REFUSED KEYS")
}

func backtestKeys(r *backtest.Result) string {
	var rows [][]string
	for i := range r.Rules {
		for _, k := range r.Rules[i].Top {
			rows = append(rows, []string{r.Rules[i].Rule, k.Key, fmt.Sprint(k.Refused)})
		}
	}
	if len(rows) == 0 {
		return ""
	}
	return renderTable([]string{"RULE", "KEY", "REFUSED"}, rows, "REFUSED")
}

func instant(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339) }

// share is a part of a whole as "5.4%"; less than one in a thousand is not nothing.
func share(part, whole int) string {
	switch {
	case whole == 0 || part == 0:
		return "0%"
	case part*1000 < whole:
		return "<0.1%"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// sparkWidth is how many characters a spark line has at most.
const sparkWidth = 32

// spark draws counts as a line of bars. Nothing is a dot, so that little is not mistaken for nothing.
func spark(counts []int) string {
	for len(counts) > sparkWidth {
		half := make([]int, (len(counts)+1)/2)
		for i, n := range counts {
			half[i/2] += n
		}
		counts = half
	}
	bars := []rune("▁▂▃▄▅▆▇█")
	most := 0
	for _, n := range counts {
		most = max(most, n)
	}
	line := make([]rune, len(counts))
	for i, n := range counts {
		line[i] = '·'
		if n > 0 {
			line[i] = bars[(n*len(bars)-1)/most]
		}
	}
	return string(line)
}

// logProgress is a bar on a terminal that says how far a log has been read; elsewhere it is silent.
type logProgress struct {
	w        io.Writer
	terminal bool
	log      *openedLog
	last     time.Time
	drawn    bool
}

// redrawEvery bounds how often the bar is drawn.
const redrawEvery = 100 * time.Millisecond

func newLogProgress(w io.Writer, terminal bool, log *openedLog) *logProgress {
	p := &logProgress{w: w, terminal: terminal, log: log}
	if terminal {
		log.count.notify = p.show
	}
	return p
}

func (p *logProgress) show() {
	if time.Since(p.last) < redrawEvery {
		return
	}
	p.last, p.drawn = time.Now(), true
	fmt.Fprintf(p.w, "\r%s\x1b[K", progressText(p.log.name, p.log.count.n, p.log.size))
}

// progressText is a bar where the size is known, and the megabytes read where it is not.
func progressText(name string, read, size int64) string {
	const width = 24
	if size <= 0 {
		return fmt.Sprintf("reading %s  %.1f MB", name, float64(read)/1e6)
	}
	done := int(min(read, size) * width / size)
	return fmt.Sprintf("reading %s  ▕%s%s▏ %d%%", name, strings.Repeat("█", done), strings.Repeat("░", width-done), min(read, size)*100/size)
}

// clear takes the bar away before something else is written to w.
func (p *logProgress) clear(w io.Writer) {
	if p.drawn {
		fmt.Fprint(w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *logProgress) end() { p.clear(p.w) }
