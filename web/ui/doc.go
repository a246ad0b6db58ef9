// Package ui is the dashboard: pages made on the server, from the same calls of the admin API as rulectl makes, with the
// same roles.
//
// The picture to hold: a [page] loads what it shows for one URL, which holds all that was chosen, and a template of the
// same name shows it. Some parts of a template are live: the same URL, asked for as an event stream, sends each of them
// anew whenever it has changed (feed.go). A change is an [action]: its form says what it will do and asks for a
// message, and its POST does it through the API (action.go). Everything is readable without JavaScript, and forms work;
// with it, forms open in a dialog, charts are drawn from the tables beneath them, and times are local.
//
// No page waits for the database longer than two seconds. What comes from outside (names, keys, messages, paths) only
// ever reaches a page through html/template. Scripts and styles are files of this package: the content security policy
// lets nothing else run, and nothing is asked of another host.
package ui
