package load

import (
	"fmt"
	"io"
	"runtime"
	"time"
)

// Report is a table of figures, in Markdown.
type Report struct {
	w io.Writer
}

// NewReport begins a table, below a line about the machine.
func NewReport(w io.Writer) *Report {
	_, _ = fmt.Fprintf(w, "%s, %s %s/%s, %d cores\n\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	_, _ = fmt.Fprint(w, "| what | figure | aim |\n| --- | --- | --- |\n")
	return &Report{w}
}

// Row adds a figure; an aim may be "".
func (r *Report) Row(aim, figure, what string, args ...any) {
	_, _ = fmt.Fprintf(r.w, "| %s | %s | %s |\n", fmt.Sprintf(what, args...), figure, aim)
}

// Milliseconds is how durations are written.
func Milliseconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}

// Kilobytes is how memory is written.
func Kilobytes(bytes int64) string { return fmt.Sprintf("%.1f KB", float64(bytes)/1000) }
