// Package browser opens the dashboard in a real Chromium, as a person would, for tests.
//
// The picture to hold: one browser per test process, and for each test a [Tab] with cookies and a cache of its own. What a
// tab is asked to do is done with real mouse and key events, and waits for the page under a deadline. Beside that, it notes
// all that goes wrong in the page: errors in the console, exceptions that nobody caught, what the content security policy
// refused, answers of 400 and above, requests that failed or went to another host. Each of them fails the test at its
// end, unless the test has said that it expects it ([Tab.Expect]).
//
// The browser is the first of chromium, chromium-browser, google-chrome and google-chrome-stable in PATH. Where none is
// installed, the test fails and names the command that installs it. It dies with the test process; the package whose tests
// use it needs harness.Main.
//
// A Tab belongs to one test and its goroutine; the tabs of parallel tests do not know each other.
package browser
