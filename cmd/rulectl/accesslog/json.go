package accesslog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/rules"
)

// ParseJSON reads a line that is one JSON object:
//
//	{"time": "2015-05-17T10:05:03Z", "method": "GET", "path": "/x?q=1", "ip": "192.0.2.1", "headers": {"x-api-key": "k"}, "attrs": {"tenant": "a"}}
//
// The time is RFC 3339 or a number of Unix seconds, whose fraction counts. Time, method, path and ip must be there;
// headers and attrs may be left out. A header is a text or a list of texts; the header host is the request's host, as
// for a server. Other members are ignored.
func ParseJSON(line string) (Entry, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(line), &members); err != nil || members == nil {
		return Entry{}, errors.New("it is not a JSON object")
	}
	at, err := jsonTime(members["time"])
	if err != nil {
		return Entry{}, err
	}
	var method, path, client string
	for name, into := range map[string]*string{"method": &method, "path": &path, "ip": &client} {
		if !jsonText(members[name], into) || *into == "" {
			return Entry{}, fmt.Errorf("%q is missing, or not text", name)
		}
	}
	ip, ok := address(client)
	if !isToken(method) || !ok {
		return Entry{}, errors.New("the method or the ip is not one")
	}
	e := Entry{At: at, Request: &rules.Request{Method: method, IP: ip, Hits: 1}}
	if e.Request.Header, err = jsonHeaders(members["headers"]); err != nil {
		return Entry{}, err
	}
	if e.Request.Attr, err = jsonAttrs(members["attrs"]); err != nil {
		return Entry{}, err
	}
	if hosts := e.Request.Header["Host"]; len(hosts) > 0 {
		e.Request.Host = rules.NormalizeHost(hosts[0])
		delete(e.Request.Header, "Host")
	}
	e.setTarget(path)
	return e, nil
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func jsonText(raw json.RawMessage, into *string) bool {
	return !absent(raw) && json.Unmarshal(raw, into) == nil
}

func jsonTime(raw json.RawMessage) (int64, error) {
	var text string
	var number json.Number
	switch {
	case jsonText(raw, &text):
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return 0, errors.New("the time is not RFC 3339")
		}
		return micros(t)
	case !absent(raw) && raw[0] != '"' && json.Unmarshal(raw, &number) == nil:
		return unixMicros(number.String())
	}
	return 0, errors.New(`"time" is missing, or neither text nor a number`)
}

// unixMicros reads Unix seconds. Plain decimals are exact to the microsecond; what is finer is cut off.
func unixMicros(text string) (int64, error) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || !isDigits(fraction+"0") {
		float, err := strconv.ParseFloat(text, 64) // 1.431857103e9
		if err != nil || math.Abs(float) > 1e12 {
			return 0, errors.New("the time is not a number of Unix seconds")
		}
		return micros(time.UnixMicro(int64(math.Round(float * 1e6))))
	}
	part, _ := strconv.ParseInt((fraction + "000000")[:6], 10, 64) // six digits
	if strings.HasPrefix(text, "-") || seconds > maxTime.Unix() {
		return 0, fmt.Errorf("the time %d is not in seconds between 1970 and 2200", seconds)
	}
	return seconds*1_000_000 + part, nil
}

// jsonObject returns an object's members that are not null, and their names in order.
func jsonObject(raw json.RawMessage, what string) (map[string]json.RawMessage, []string, error) {
	if absent(raw) {
		return nil, nil, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, nil, fmt.Errorf("%q is not an object", what)
	}
	maps.DeleteFunc(members, func(_ string, v json.RawMessage) bool { return absent(v) })
	return members, slices.Sorted(maps.Keys(members)), nil
}

func jsonHeaders(raw json.RawMessage) (map[string][]string, error) {
	members, names, err := jsonObject(raw, "headers")
	header := make(map[string][]string, len(members))
	for _, name := range names {
		var values []string
		var value string
		if jsonText(members[name], &value) {
			values = []string{value}
		} else if json.Unmarshal(members[name], &values) != nil {
			return nil, fmt.Errorf("the header %q is neither text nor a list of texts", name)
		}
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if len(values) > 0 {
			header[canonical] = append(header[canonical], values...)
		}
	}
	return header, err
}

// jsonAttrs takes numbers and truth values as they are written: an attribute is text, and loggers do not know that.
func jsonAttrs(raw json.RawMessage) (map[string]string, error) {
	members, names, err := jsonObject(raw, "attrs")
	attrs := make(map[string]string, len(members))
	for _, name := range names {
		value := string(members[name])
		if value[0] == '{' || value[0] == '[' {
			return nil, fmt.Errorf("the attribute %q is not text", name)
		}
		if value[0] == '"' && !jsonText(members[name], &value) {
			return nil, fmt.Errorf("the attribute %q is not text", name)
		}
		attrs[name] = value
	}
	return attrs, err
}
