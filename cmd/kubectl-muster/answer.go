package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// answer is the result of a command. As JSON and YAML it is written as it is.
type answer interface {
	print(*printer) error
}

// Formats that -o takes.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
)

var formats = []string{asTable, asWide, asJSON, asYAML}

// redraw is the period of --watch.
const redraw = 2 * time.Second

// clearScreen clears a terminal and moves the cursor to its upper left corner.
const clearScreen = "\x1b[H\x1b[2J"

// addOutput adds the output flags. They are checked before the cluster is read.
func (o *options) addOutput(command *cobra.Command) {
	command.Flags().StringVarP(&o.output, "output", "o", asTable, "output format: "+strings.Join(formats, ", "))
	command.Flags().BoolVarP(&o.watch, "watch", "w", false, fmt.Sprintf("refresh every %s, until Ctrl-C", redraw))
	if err := command.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
	command.PreRunE = func(*cobra.Command, []string) error {
		if !slices.Contains(formats, o.output) {
			return fmt.Errorf("--output=%q: use one of %s", o.output, strings.Join(formats, ", "))
		}
		return nil
	}
}

// answer computes and writes the answer, once or until ctx is done.
func (o *options) answer(command *cobra.Command, ask func(context.Context) (answer, error)) error {
	ctx, out := command.Context(), command.OutOrStdout()
	ticker := o.clock.NewTicker(redraw)
	defer ticker.Stop()
	for {
		a, err := ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		// Written at once, so that a terminal does not flicker.
		var text bytes.Buffer
		if o.watch && isTerminal(out) {
			text.WriteString(clearScreen)
		}
		p := newPrinter(out, o.output)
		if p.out = &text; o.output == asJSON || o.output == asYAML {
			err = encode(&text, o.output, a)
		} else {
			err = a.print(p)
		}
		if err != nil {
			return err
		}
		if _, err := text.WriteTo(out); err != nil || !o.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}
