package rules_test

import (
	"testing"

	"github.com/headgate/headgate/rules"
)

func TestNormalizePath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                     "/",
		"/":                    "/",
		"/v1/login":            "/v1/login",
		"//v1///login":         "/v1/login",
		"/v1/./a/../login":     "/v1/login",
		"/v1/..":               "/",
		"/v1/a/..":             "/v1/",
		"/../../etc":           "/etc",
		"/v1/login/":           "/v1/login/",
		"/v1/login/.":          "/v1/login/",
		"/%76%31/lo%67in":      "/v1/login",
		"/%2e%2e/v1/%2E/x":     "/v1/x",
		"/a%3fb%20c":           "/a%3Fb%20c",
		"/caf\u00e9":           "/caf%C3%A9",
		"/v1/x%3asearch%40%21": "/v1/x:search@!",
		"/a b":                 "/a%20b",
		"/a;v=1/b,c:d@e!$&'()": "/a;v=1/b,c:d@e!$&'()",
		`/a\..\b`:              "/a%5C..%5Cb",
	} {
		if got, err := rules.NormalizePath(in); err != nil || got != want {
			t.Errorf("NormalizePath(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"/a%2fb", "/a%2Fb", "/a%00", "/a%", "/a%4", "/a%zz", "v1", "*"} {
		if got, err := rules.NormalizePath(in); err == nil {
			t.Errorf("NormalizePath(%q) = %q, want an error", in, got)
		}
	}
}

func FuzzNormalizePath(f *testing.F) {
	for _, seed := range []string{"/", "/a/../b", "/%61", "//", "/a%20b/", "/.", "/%2e%2e/"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		once, err := rules.NormalizePath(in)
		if err != nil {
			return
		}
		if twice, err := rules.NormalizePath(once); err != nil || twice != once {
			t.Errorf("normalising %q gives %q, and again %q, %v", in, once, twice, err)
		}
	})
}

func TestMethodsAndHostsThatCanBeTold(t *testing.T) {
	t.Parallel()
	for method, can := range map[string]bool{
		"GET": true, "PROPFIND": true, "X-PURGE": true, "": false, "get": false, "CONNECT": false, "GET, POST": false, "G T": false, "GÉT": false,
	} {
		if problem := rules.CheckMethod(method); (problem == "") != can {
			t.Errorf("method %q: %q", method, problem)
		}
	}
	for host, can := range map[string]bool{
		"": true, "shop.example": true, "Shop.Example.:8080": true, "192.0.2.1:80": true, "[2001:db8::1]:80": true, "a_b": true, "xn--shp-tna.example": true,
		"shöp.example": false, "shop%2eexample": false, "[fe80::1%25eth0]": false, "u@shop.example": false, "shop.example/x": false, "a b": false, "a\\b": false,
		"shop.example:": true, "shop.example:80:90": false, "shop.example:http": false, "[::1": false, "[::1]x": false, "::1": false, "a[b]": false,
	} {
		if problem := rules.CheckHost(host); (problem == "") != can {
			t.Errorf("host %q: %q", host, problem)
		}
	}
}
