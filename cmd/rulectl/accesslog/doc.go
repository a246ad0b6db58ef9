// Package accesslog reads access logs as the requests that a sidecar would have seen, in the order of their time.
//
// A log is read once, as a stream: memory follows the traffic of one sort window, never the length of the log. Servers
// write a line when a request ends, so lines stand a little out of order; a heap of the last sort window puts them right,
// and a line that is later than the window allows is an error, since the requests before it have been handed on.
//
// A line is malformed unless the whole format is there. What follows the format is ignored: many servers append fields to
// the combined format. A well-formed line whose target a sidecar answers with 400 (an encoded slash, say) is an entry
// without a request: no rule sees it.
//
// Nothing here is safe for concurrent use but the parsers, which are pure.
package accesslog
