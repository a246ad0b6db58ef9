package rules_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/rules"
)

func TestSpecSurvivesItsEncoding(t *testing.T) {
	t.Parallel()
	k, err := rules.ParseKeySource("header:X-Api-Key")
	if err != nil {
		t.Fatal(err)
	}
	s := spec(t, "600/min burst 1200")
	s.Description, s.Owner, s.Failure = "Calls per API key", "team-x", rules.Failure{Mode: rules.FailClosed}
	s.Match = rules.Match{Method: []string{"GET"}, Path: []string{"/v1/*"}}
	s.Key = []rules.KeySource{k}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"description":"Calls per API key","owner":"team-x","match":{"method":["GET"],"path":["/v1/*"]},` +
		`"key":["header:x-api-key"],"limits":[{"algorithm":"token-bucket","rate":"600/min burst 1200"}],"failure":"closed"}`
	if string(b) != want {
		t.Errorf("encoded\n%s\nwant\n%s", b, want)
	}
	got, err := rules.DecodeSpec(b)
	if err != nil || !got.Equal(*s) {
		t.Errorf("decoded %+v, %v; want %+v", got, err, s)
	}
}

// A sidecar must not enforce half of a spec: what it does not know it refuses.
func TestDecodeSpecRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		``, `{}`, `null`, `[]`,
		`{"key":[],"limits":[{"algorithm":"token-bucket","rate":"1/s"}],"later":"true"}`,
		`{"key":["claim:sub"],"limits":[{"algorithm":"token-bucket","rate":"1/s"}]}`,
		`{"key":[],"limits":[{"algorithm":"leaky-bucket","rate":"1/s"}]}`,
		`{"key":[],"limits":[{"algorithm":"token-bucket","rate":"1/s"}]} {}`,
		`{"key":[],"limits":[{"algorithm":"token-bucket"}]}`,
	} {
		if s, err := rules.DecodeSpec([]byte(text)); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("DecodeSpec(%s) = %+v, %v; want ErrInvalid", text, s, err)
		}
	}
}
