// Package archtest keeps the rules of the code's architecture, as a test: which package
// may import which, what the centre and the sidecar must stay free of, and what tests may
// not do. Its failures say why the rule exists, since that is the moment somebody wants to
// know.
//
// The checks are pure functions over a description of the code ([Tree]), so that the test
// can first show each of them a violation and see it caught. [Load] describes the real
// code.
//
// The layers restrict what is compiled into a package. Test files are free to import
// upwards, as they must to use test/harness and a neighbour's fake.
package archtest
