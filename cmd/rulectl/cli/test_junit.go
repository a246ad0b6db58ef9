package cli

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

// The form of a JUnit report that CI systems read: a suite for each test, a case for each of its steps.
type junitReport struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	Failure *junitFailure `xml:"failure"`
	Error   *junitFailure `xml:"error"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func printJUnit(w io.Writer, runs []testRun, took time.Duration) error {
	report := junitReport{Name: "rulectl test", Time: seconds(took)}
	for i := range runs {
		s := junitSuiteOf(&runs[i])
		report.Suites = append(report.Suites, s)
		report.Tests += s.Tests
		report.Failures += s.Failures
		report.Errors += s.Errors
	}
	text, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	return err
}

func junitSuiteOf(r *testRun) junitSuite {
	s := junitSuite{Name: r.name, Time: seconds(r.result.Took)}
	add := func(c junitCase) {
		c.Class = r.name
		s.Cases = append(s.Cases, c)
		s.Tests++
	}
	if r.err != nil {
		s.Errors++
		add(junitCase{Name: "read", Error: &junitFailure{Message: "the test cannot be read", Text: clean(r.err.Error())}})
		return s
	}
	failed := map[int]*junitFailure{} // by step
	for i := range r.result.Failures {
		f := &r.result.Failures[i]
		if failed[f.Step] == nil {
			failed[f.Step] = &junitFailure{Message: failureTitle(f)}
			s.Failures++
		}
		failed[f.Step].Text += strings.TrimRight(failureText(f), "\n") + "\n"
	}
	for step := 1; step <= r.result.Steps; step++ {
		add(junitCase{Name: fmt.Sprintf("step %d", step), Failure: failed[step]})
	}
	return s
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
