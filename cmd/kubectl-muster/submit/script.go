package submit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// directive begins the lines of a script that have options.
	directive = "#MUSTER"
	// mostText bounds the bytes of a script, which is passed as one argument: Linux accepts 128 KiB.
	mostText = 100_000
)

// Script is a program that a job runs, which may have its options in directives.
type Script struct {
	// Name of the file.
	Name string
	Text string
}

// Apply sets the options that directives of the script have and that the flags of the command line do not, and the command that runs it.
func (s Script) Apply(o *Options, given *pflag.FlagSet) error {
	if len(s.Text) > mostText {
		return fmt.Errorf("%s has %d bytes, at most %d fit into an argument: put it into the image", s.Name, len(s.Text), mostText)
	}
	interpreter, ok := strings.CutPrefix(strings.SplitN(s.Text, "\n", 2)[0], "#!")
	if !ok || len(strings.Fields(interpreter)) == 0 {
		return fmt.Errorf("%s: the first line names no interpreter, for example #!/bin/bash", s.Name)
	}
	flags := pflag.NewFlagSet(s.Name, pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, too
	own := Options{}
	own.AddFlags(flags)
	flags.StringVar(&own.Name, "name", "", "")
	for i, line := range strings.Split(s.Text, "\n") {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			break // directives stand before the first command
		}
		text, ok := strings.CutPrefix(line, directive+" ")
		if !ok {
			continue
		}
		err := flags.Parse(strings.Fields(text))
		if err == nil && flags.NArg() > 0 {
			err = errors.New("use --FLAG=VALUE")
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %s %s: %w", s.Name, i+1, directive, text, err)
		}
	}
	o.Name = cmp.Or(o.Name, own.Name)
	o.Env, o.NodeSelector = labels.Merge(own.Env, o.Env), labels.Merge(own.NodeSelector, o.NodeSelector)
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if to := given.Lookup(f.Name); f.Changed && to != nil && !to.Changed && f.Value.Type() != "stringToString" && err == nil {
			err = to.Value.Set(f.Value.String())
		}
	})
	o.Command = append(strings.Fields(interpreter), "-c", s.Text)
	return err
}
