package ui

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// maxNotice is how many bytes a notice has; it is cut there.
const maxNotice = 1024

// leaveNotice has the next page say what was done. It travels in a cookie rather than in the address, where anybody could
// make a page say anything.
func (u *UI) leaveNotice(w http.ResponseWriter, text string) {
	const aMinute = 60
	text = strings.ToValidUTF8(text[:min(len(text), maxNotice)], "")
	http.SetCookie(w, u.notice(base64.RawURLEncoding.EncodeToString([]byte(text)), aMinute))
}

// takeNotice returns it once.
func (u *UI) takeNotice(w http.ResponseWriter, r *http.Request) string {
	c, err := r.Cookie(u.notice("", 0).Name)
	if err != nil {
		return ""
	}
	http.SetCookie(w, u.notice("", -1))
	text, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(text), "")
}

// notice is its cookie. By https it has a prefix with which browsers take it from this host alone: one of a neighbouring name
// could have pages say that something was done.
func (u *UI) notice(value string, seconds int) *http.Cookie {
	name := "headgate_notice"
	if u.tls {
		name = "__Host-" + name
	}
	return &http.Cookie{ //nolint:gosec // over plain HTTP it has to come back too
		Name: name, Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: u.tls,
	}
}
