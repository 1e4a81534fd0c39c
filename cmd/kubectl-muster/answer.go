package main

import (
	"bytes"
	"context"
	"errors"
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

// foretelling is an answer with a forecast, which takes longer than all else and is therefore made and written last.
type foretelling interface {
	answer
	// foretell makes the forecast. Its error says why there is none.
	foretell(context.Context) error
	// without notes why there is none.
	without(why string)
	printForecast(*printer)
}

// Formats that -o takes.
const (
	asTable = "table"
	asWide  = "wide"
	asJSON  = "json"
	asYAML  = "yaml"
	// asCSV is of commands that have rows alone.
	asCSV = "csv"
)

var formats = []string{asTable, asWide, asJSON, asYAML}

// redraw is the period of --watch.
const redraw = 2 * time.Second

// clearScreen clears a terminal and moves the cursor to its upper left corner.
const clearScreen = "\x1b[H\x1b[2J"

// clearLine clears the line of a terminal that the cursor is in, and moves the cursor up into the empty one before.
const clearLine = "\r\x1b[K\x1b[A"

// addOutput adds the output flags, with the formats that the command has beside the usual ones. They are checked before the cluster is
// read.
func (o *options) addOutput(command *cobra.Command, more ...string) {
	formats := slices.Concat(formats, more)
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

// addForecast adds the flag that bounds forecasts.
func (o *options) addForecast(command *cobra.Command) {
	command.Flags().DurationVar(&o.patience, "forecast-timeout", 10*time.Second,
		"how long the estimate of a start may take, which comes last; with hundreds of pending jobs it takes minutes; 0 leaves it out")
}

// foretell makes the forecast of an answer, if it takes no longer than the caller waits for it.
func (o *options) foretell(ctx context.Context, f foretelling) {
	if o.patience <= 0 {
		return
	}
	timed, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	switch err := f.foretell(timed); {
	case errors.Is(err, context.DeadlineExceeded):
		f.without(fmt.Sprintf("not estimated within %s: so many jobs wait that it takes longer. Set a longer --forecast-timeout, or see the "+
			"page (muster-dashboard), which estimates in the background", o.patience))
	case err != nil:
		f.without(fmt.Sprintf("not estimated: %s", err))
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
		f, foretells := a.(foretelling)
		if p.out = &text; o.output == asJSON || o.output == asYAML {
			if foretells {
				o.foretell(ctx, f)
			}
			foretells, err = false, encode(&text, o.output, a)
		} else {
			err = a.print(p)
		}
		if err != nil {
			return err
		}
		if foretells {
			if _, err := text.WriteTo(out); err != nil {
				return err
			}
			notice := command.ErrOrStderr()
			if isTerminal(notice) && o.patience > 0 {
				fmt.Fprintf(notice, "\nEstimating the start, for %s at most ...", o.patience)
			}
			o.foretell(ctx, f)
			if isTerminal(notice) && o.patience > 0 {
				fmt.Fprint(notice, clearLine)
			}
			f.printForecast(p)
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
