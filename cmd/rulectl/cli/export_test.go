package cli

import "github.com/spf13/cobra"

// Tree is the tree of commands as it is in every environment.
func Tree() *cobra.Command { return tree() }

// AllExitCodes are the exit codes with their meanings, in order.
func AllExitCodes() (codes []int, meanings []string) {
	for _, e := range exitCodes {
		codes, meanings = append(codes, e.code), append(meanings, e.meaning)
	}
	return codes, meanings
}
