// Command hello is what the harness builds in its own test.
package main

import "fmt"

func main() { fmt.Println("hello") }
