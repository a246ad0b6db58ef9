package ui

import (
	"encoding/base64"
	"net/http"
	"unicode/utf8"
)

const (
	noticeCookie = "headgate_notice"
	maxNotice    = 1024 // bytes
)

// leaveNotice has the next page say what was done. It travels in a cookie rather than in the address, where anybody could
// make a page say anything.
func leaveNotice(w http.ResponseWriter, r *http.Request, text string) {
	if len(text) > maxNotice {
		text = text[:maxNotice]
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // over plain HTTP it has to come back too
		Name: noticeCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(text)), Path: "/", MaxAge: 60,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
}

// takeNotice returns it once.
func takeNotice(w http.ResponseWriter, r *http.Request) string {
	c, err := r.Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // as above
		Name: noticeCookie, Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || !utf8.Valid(text) {
		return ""
	}
	return string(text)
}
