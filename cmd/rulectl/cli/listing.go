package cli

import (
	"cmp"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// A listing is how things of one kind are shown: as a table, as names, or for a program.
type listing[T any] struct {
	kind   string
	header []string
	wide   []string                         // the columns that -o wide has beside them
	right  []string                         // the columns that are aligned to the right
	texts  []string                         // the columns that are cut where a terminal has no room; -o wide cuts nothing
	row    func(item T, wide bool) []string // the cells
	notes  func(T, time.Time) []string      // what must not be overlooked, below the row; nil: nothing
	item   func(T) any                      // the JSON form; nil: the thing itself
	single func(T) any                      // the JSON form of what was named alone; nil: it is a list
	name   func(T) string                   // as commands take it; nil: they have none
	id     func(T) string                   // tells one from the others, for --watch; nil: name
	steady func(T) any                      // the JSON form without what changes by itself; nil: nothing does
	none   func()                           // says that there is nothing, and what makes something
}

// listFlags are the flags of every command that lists things.
func (a *app) listFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.noHeaders, "no-headers", false, "print the table without its headers")
	cmd.Flags().StringVar(&a.sortBy, "sort-by", "", "column of the table to sort by; with - before it the largest comes first")
}

// show prints the items as -o says.
func (l *listing[T]) show(a *app, items []T) error {
	if err := l.sort(a, items); err != nil {
		return err
	}
	switch {
	case a.structured() && l.single != nil && len(items) == 1:
		return a.printData(l.single(items[0]))
	case a.structured():
		return printList(a, l.kind, l.json(items))
	case a.output == outputName:
		return printNames(a, l.names(items), func(name string) string { return name })
	case len(items) == 0:
		l.none()
		return nil
	}
	_, err := io.WriteString(a.io.Out, l.render(l.table(a), items))
	return err
}

func (l *listing[T]) json(items []T) []any {
	list := make([]any, len(items))
	for i, item := range items {
		list[i] = item
		if l.item != nil {
			list[i] = l.item(item)
		}
	}
	return list
}

// names are those of the items, each once.
func (l *listing[T]) names(items []T) (list []string) {
	seen := map[string]bool{}
	for _, item := range items {
		if n := l.name(item); !seen[n] {
			seen[n] = true
			list = append(list, n)
		}
	}
	return list
}

func (l *listing[T]) table(a *app) *table {
	t := &table{header: l.header, right: l.right, texts: l.texts, bare: a.noHeaders, room: a.room()}
	if a.output == outputWide {
		t.header, t.room = slices.Concat(l.header, l.wide), 0
	}
	return t
}

func (l *listing[T]) render(t *table, items []T) string {
	now := time.Now()
	rows := make([][]string, len(items))
	for i, item := range items {
		rows[i] = l.row(item, len(t.header) > len(l.header))
	}
	return t.render(rows, func(i int) []string {
		if l.notes == nil {
			return nil
		}
		return l.notes(items[i], now)
	})
}

// sort sorts by the column that --sort-by names.
func (l *listing[T]) sort(a *app, items []T) error {
	if a.sortBy == "" {
		return nil
	}
	name, down := strings.CutPrefix(a.sortBy, "-")
	all := slices.Concat(l.header, l.wide)
	at := slices.IndexFunc(all, func(title string) bool {
		return strings.EqualFold(title, name) || strings.EqualFold(strings.ReplaceAll(title, " ", "-"), name)
	})
	if at < 0 {
		return usagef("--sort-by: there is no column %q: use %s", name, strings.ToLower(strings.Join(all, ", ")))
	}
	type sorted struct {
		cell string
		item T
	}
	list := make([]sorted, len(items))
	for i, item := range items {
		list[i] = sorted{l.row(item, at >= len(l.header))[at], item}
	}
	slices.SortStableFunc(list, func(a, b sorted) int {
		if down {
			return compareCells(b.cell, a.cell)
		}
		return compareCells(a.cell, b.cell)
	})
	for i := range list {
		items[i] = list[i].item
	}
	return nil
}

var (
	ageText = regexp.MustCompile(`^(\d+[dhms])+( ago)?$`)
	runs    = regexp.MustCompile(`\d+|\D+`)
)

// compareCells compares as people do: numbers by their value, also within a text (v9 before v10), and ages by their length.
func compareCells(a, b string) int {
	if ageText.MatchString(a) && ageText.MatchString(b) {
		return cmp.Compare(ageSeconds(a), ageSeconds(b))
	}
	number := func(run string) bool { return run[0] >= '0' && run[0] <= '9' }
	return slices.CompareFunc(runs.FindAllString(a, -1), runs.FindAllString(b, -1), func(a, b string) int {
		if number(a) && number(b) {
			a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
			return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
		}
		return strings.Compare(a, b)
	})
}

// ageSeconds reads what age writes.
func ageSeconds(text string) (sum int) {
	unit := map[byte]int{'s': 1, 'm': 60, 'h': 3600, 'd': 24 * 3600}
	text, _ = strings.CutSuffix(text, " ago")
	for len(text) > 0 {
		end := strings.IndexAny(text, "dhms")
		n, _ := strconv.Atoi(text[:end]) // which ageText has made sure of
		sum += n * unit[text[end]]
		text = text[end+1:]
	}
	return sum
}
