package ui

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static
var files embed.FS

// asset returns the address of a static file, which changes with its content, so that it may be kept for ever.
func asset(name string) string { return "/static/" + name + "?v=" + sums()[name] }

// sums are short hashes of the static files by name.
var sums = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	_ = fs.WalkDir(files, "static", func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(p)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		all[strings.TrimPrefix(p, "static/")] = hex.EncodeToString(sum[:6])
		return nil
	})
	return all
})

// static serves the files of the dashboard, and no others.
func static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	sum, ok := sums()[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	content, err := files.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == sum {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(content) //nolint:gosec // a file of this package
}
