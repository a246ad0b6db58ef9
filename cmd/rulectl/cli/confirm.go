package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// confirm holds what cannot be overlooked until somebody says yes: at a terminal by an answer, elsewhere by --yes. What is
// as in "delete a/x"; whatever else is to be known for the answer has been printed. In a protected context the answer is
// the context's name.
func (a *app) confirm(ctx context.Context, what string) error {
	if err := a.allow(ctx, what); err != nil || a.typed || a.yes.given() {
		return err
	}
	if !a.io.Interactive {
		a.complain("nothing was changed, and nobody can be asked: %s", what)
		a.advise("when it is meant, say --yes")
		return explained{exitGuarded}
	}
	fmt.Fprintf(a.io.Err, "%s? [y/N] ", clean(what))
	answer, err := a.answer(ctx)
	if err != nil {
		return err
	}
	switch strings.ToLower(answer) {
	case "y", "yes":
		return nil
	}
	a.complain("nothing was changed")
	return explained{exitGuarded}
}

// answer is what somebody types; an end of input is an empty answer.
func (a *app) answer(ctx context.Context) (string, error) {
	const most = 1000 // bytes
	line, err := a.typedBefore(ctx, func() (string, error) {
		line, _ := bufio.NewReader(io.LimitReader(a.io.In, most)).ReadString('\n')
		return line, nil
	})
	if !strings.HasSuffix(line, "\n") {
		fmt.Fprintln(a.io.Err) // what follows has a line of its own
	}
	return strings.TrimSpace(line), err
}

// secret is what somebody types at a terminal without seeing it: nothing is shown from before the prompt on, so that also
// what is pasted early is not.
func (a *app) secret(ctx context.Context, in *os.File, prompt string) (string, error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return "", err
	}
	text, err := a.typedBefore(ctx, func() (string, error) {
		return term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{in, raw(a.io.Err)}, "").ReadPassword(prompt)
	})
	_ = term.Restore(int(in.Fd()), before)
	if errors.Is(err, io.EOF) { // Ctrl-C, which raises no signal here, or Ctrl-D
		return "", explained{exitInterrupted}
	}
	return text, err
}

// typedBefore returns what read reads, or that ctx ended: reading itself is not ended by it, and nobody waits for it.
func (a *app) typedBefore(ctx context.Context, read func() (string, error)) (string, error) {
	type result struct {
		text string
		err  error
	}
	typed := make(chan result, 1)
	go func() {
		text, err := read()
		typed <- result{text, err}
	}()
	select {
	case r := <-typed:
		return r.text, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
