package rulefile

import (
	"fmt"
	"strings"
)

// Nearest returns the word that a slip of the pen turned into text; "" when none is near. With several equally near, it
// is the first.
func Nearest(text string, words []string) string {
	best, least := "", max(1, len(text)/2)+1
	text = strings.ToLower(text)
	if len(text) > 32 {
		return "" // longer than any word by far
	}
	for _, word := range words {
		if n := distance(text, strings.ToLower(word)); n < least {
			best, least = word, n
		}
	}
	return best
}

// didYouMean is the end of a message about an unknown word.
func didYouMean(text string, words []string) string {
	if word := Nearest(text, words); word != "" {
		hint := ""
		if word == "limit" && distance(strings.ToLower(text), "unlimited") < 3 {
			hint = " (limit: unlimited never refuses)"
		}
		return fmt.Sprintf("did you mean %q?%s Known here: %s", word, hint, strings.Join(words, ", "))
	}
	return "known here: " + strings.Join(words, ", ")
}

// nearSource is the end of a message about an unknown source; "" when none is near.
func nearSource(text string) string {
	kind, name, named := strings.Cut(text, ":")
	if !named {
		if word := Nearest(text, []string{"ip", "method", "host", "path"}); word != "" && word != text {
			return fmt.Sprintf("; did you mean %q?", word)
		}
		return ""
	}
	if word := Nearest(kind, []string{"header", "query", "cookie", "attr"}); word != "" && word != kind {
		return fmt.Sprintf("; did you mean %q?", word+":"+shorten(name))
	}
	return ""
}

// distance counts the letters to insert, remove, replace or swap with a neighbour to turn a into b.
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(last[j]+1, row[j-1]+1, replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
