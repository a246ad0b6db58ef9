package rules

import "net/netip"

// Request is what a rule sees of a call. A door fills it in; nothing changes it afterwards.
type Request struct {
	Domain string
	Method string // upper case
	Path   string // without the query string
	IP     netip.Addr
	// Header has net/http's canonical names ("X-Api-Key").
	Header map[string][]string
}
