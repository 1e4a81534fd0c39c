package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/provisioning/text"
)

// printer writes answers as text, in colour on a terminal.
type printer struct {
	out    io.Writer
	colour bool
	wide   bool
	csv    bool
}

// Colours of a terminal.
const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

func newPrinter(out io.Writer, format string) *printer {
	return &printer{out: out, wide: format == asWide, csv: format == asCSV, colour: isTerminal(out) && os.Getenv("NO_COLOR") == ""}
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func (p *printer) heading(text string) {
	if p.colour {
		text = bold + text + plain
	}
	fmt.Fprintln(p.out, text)
}

// alarm writes what cannot come right by itself.
func (p *printer) alarm(text string) {
	if p.colour {
		text = red + text + plain
	}
	fmt.Fprintln(p.out, text)
}

// percent is a chance; empty if there is none.
func percent(chance *int) string {
	if chance == nil {
		return ""
	}
	return fmt.Sprintf("%d%%", *chance)
}

// short returns the words for a state without the cause, which only -o wide and explain show.
func (p *printer) short(words string) string {
	if !p.wide {
		words, _, _ = strings.Cut(words, ": ")
	}
	return words
}

// list writes a heading and a line for each item; nothing if there is none.
func (p *printer) list(heading string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintln(p.out)
	p.heading(heading)
	for _, item := range items[:p.shown(len(items))] {
		if !p.wide {
			item = text.Clip(item, longest)
		}
		fmt.Fprintln(p.out, "  -", item)
	}
	p.more(len(items))
}

// A cluster may have hundreds of groups with the same answer, and thousands of jobs. Except
// with -o wide, the parts of an answer are cut to this many items and bytes each.
const (
	most    = 10
	longest = 1000
)

// shown returns how many of n items are printed.
func (p *printer) shown(n int) int {
	if p.wide {
		return n
	}
	return min(n, most)
}

// more writes how many of n items are left out.
func (p *printer) more(n int) {
	if left := n - p.shown(n); left > 0 {
		fmt.Fprintf(p.out, "  and %d more (-o wide shows all)\n", left)
	}
}

// part writes a heading and a table; nothing if the table is empty.
func (p *printer) part(heading string, columns []string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	fmt.Fprintln(p.out)
	p.heading(heading)
	if err := p.rows("  ", columns, rows[:p.shown(len(rows))]); err != nil {
		return err
	}
	p.more(len(rows))
	return nil
}

// rows writes a table.
func (p *printer) rows(indent string, columns []string, rows [][]string) error {
	if p.csv {
		return csv.NewWriter(p.out).WriteAll(append([][]string{columns}, rows...))
	}
	table := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{columns}, rows...) {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = cell; cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(table, indent+strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// encode writes a value as JSON or YAML.
func encode(out io.Writer, format string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	if format == asYAML {
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(out, strings.TrimRight(string(text), "\n"))
	return err
}

// explanation prints itself as text.
type explanation struct{ *view.Explanation }

// print writes the sentence, then the reasons.
func (e explanation) print(p *printer) error {
	if e.Never {
		p.alarm(e.sentence())
	} else {
		p.heading(e.sentence())
	}
	return p.reasons(e.Explanation)
}

// pending is the explanation of a Workload that waits in its queue, with an estimate of its start.
type pending struct {
	explanation
	among *view.Picture
	uid   types.UID
}

func (e pending) foretell(ctx context.Context) error {
	if err := e.among.Foresee(ctx); err != nil {
		return err
	}
	e.Expected = e.among.Expected(e.uid)
	return nil
}

func (e pending) without(why string) { e.Expected = &view.Expected{Words: []string{why}} }

func (e pending) printForecast(p *printer) { p.expected("Expected start", e.Expected) }

// expected writes the estimate of a start; nothing without one.
func (p *printer) expected(heading string, e *view.Expected) {
	if e == nil {
		return
	}
	words := e.Words
	if p.wide && e.Basis != "" {
		words = append(slices.Clip(words), e.Basis)
	}
	p.list(heading, words)
}

// missing says in one line that the caller lacks rights, with all of them on -o wide.
func (p *printer) missing(effect string, rights []view.Right) {
	switch {
	case len(rights) == 0:
	case p.wide:
		p.list("Missing rights: "+effect, lacking(rights))
	default:
		fmt.Fprintf(p.out, "\nYou may not read all that decides: %s (-o wide names the missing rights).\n", effect)
	}
}

// reasons writes everything after the sentence.
func (p *printer) reasons(e *view.Explanation) error {
	if at := e.Place; at != nil {
		where := fmt.Sprintf("ClusterQueue %s, LocalQueue %s, priority %d", at.ClusterQueue, at.LocalQueue, at.Priority)
		if at.Position > 0 {
			where += fmt.Sprintf(": %s of %d in the queue, waiting for %s", nodegroups.Ordinal(at.Position), at.Pending, at.Waited)
		}
		fmt.Fprintln(p.out, where)
	}
	p.list("Why", e.Causes)
	p.list("What would change this", e.Unblock)
	p.list("Jobs that wait", e.Waiting)
	p.list("Quota in use", e.Usage)
	p.list("Devices free", eachFree(e.Devices))
	p.list("Jobs there", e.Jobs)
	p.list("Order of its pod sets", e.Order)
	var rows [][]string
	for _, q := range e.Quota {
		rows = append(rows, []string{q.Flavor, q.Resource, q.Requested, q.Free, q.Short, q.Whole, q.Borrowable})
	}
	if err := p.part("Quota", []string{"FLAVOR", "RESOURCE", "REQUESTED", "FREE", "SHORT", "MAXIMUM", "BORROWABLE"}, rows); err != nil {
		return err
	}
	if err := p.capacity(e.Capacity); err != nil {
		return err
	}
	if err := p.holders("Workloads with this quota", e.Holders); err != nil {
		return err
	}
	rows = nil
	for _, m := range e.Machines {
		rows = append(rows, []string{m.Group, m.Request, fmt.Sprint(m.Priority), fmt.Sprint(m.Machines), fmt.Sprint(m.Pods)})
	}
	if err := p.part("Requests with these machines", []string{"GROUP", "PROVISIONINGREQUEST", "PRIORITY", "MACHINES", "PODS"},
		rows); err != nil {
		return err
	}
	p.list("Machines for it", e.Prices)
	if len(e.Missing) > 0 {
		p.expected("Expected start", e.Expected)
	}
	p.list("Recent events", e.Recorded)
	p.missing("this is what Muster recorded on the object", e.Missing)
	return nil
}

// sentence begins with the object's name.
func (e explanation) sentence() string {
	name := fmt.Sprintf("%s %s/%s", e.Kind, e.Namespace, e.Name)
	if e.Namespace == "" {
		name = e.Kind + " " + e.Name
	}
	if e.Workload != "" {
		name += fmt.Sprintf(" (Workload %s)", e.Workload)
	}
	return name + " " + e.Summary + "."
}

// holders writes the Workloads that have the quota.
func (p *printer) holders(heading string, lines []view.HolderLine) error {
	var rows [][]string
	for _, h := range lines {
		borrows := ""
		if h.Borrows {
			borrows = "yes"
		}
		rows = append(rows, []string{h.Workload, h.Queue, fmt.Sprint(h.Priority), h.Has, borrows})
	}
	return p.part(heading, []string{"WORKLOAD", "CLUSTERQUEUE", "PRIORITY", "USES", "BORROWS"}, rows)
}

// capacity writes what groups could provide, and what rules them out.
func (p *printer) capacity(lines []view.CapacityLine) error {
	columns := []string{"FLAVOR", "GROUP", "CAPACITY", "USD/H", "MACHINES", "NEEDED", "CHANCE"}
	if p.wide {
		columns = append(columns, "LAST FAILURE", "BACKOFF UNTIL", "WHY NOT")
	}
	var rows [][]string
	unfit := map[string]bool{}
	for _, c := range lines {
		if c.Needed == 0 && !p.wide {
			unfit[c.Group] = true
			continue
		}
		needed := ""
		if c.Needed > 0 {
			needed = fmt.Sprint(c.Needed)
		}
		row := []string{c.Flavor, c.Group, c.CapacityType, c.USDPerHour, fmt.Sprintf("%d of %d", c.Machines, c.MaxMachines),
			needed, percent(c.Chance)}
		if p.wide {
			row = append(row, c.LastFailure, c.Backoff, c.Why)
		}
		rows = append(rows, row)
	}
	if err := p.part("Machines", columns, rows); err != nil {
		return err
	}
	if n := len(unfit); n > 0 {
		fmt.Fprintf(p.out, "\nNodeGroups whose machines do not suit its pods: %d (-o wide says why)\n", n)
	}
	return nil
}

// missingRights reports how to get missing rights.
const missingRights = "Ask an administrator for the ClusterRole muster-explain, which may read everything that decisions depend on: " +
	"kubectl create clusterrolebinding muster-explain-YOU --clusterrole=muster-explain --user=YOU"

// lacks is the error for a caller without the rights that a command needs; -o wide names all of them.
func (o *options) lacks(what string, missing []view.Right) error {
	if o.output == asWide {
		return fmt.Errorf("you may not read %s. Missing:\n  - %s", what, strings.Join(lacking(missing), "\n  - "))
	}
	more := ""
	if n := len(missing) - 1; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Errorf("you may not read %s: %s%s (-o wide names them). An administrator can give you the ClusterRole muster-explain", what,
		missing[0], more)
}

// lacking lists the caller's missing rights and how to get them.
func lacking(missing []view.Right) []string {
	if len(missing) == 0 {
		return nil
	}
	names := make([]string, len(missing))
	resources := make([]string, len(missing))
	for i, m := range missing {
		names[i], resources[i] = m.String(), m.Resource
	}
	return []string{
		fmt.Sprintf("%s in all namespaces", strings.Join(names, ", ")),
		missingRights,
		fmt.Sprintf("or for the missing rights alone: kubectl create clusterrole muster-explain-some --verb=list --resource=%s; "+
			"kubectl create clusterrolebinding muster-explain-YOU --clusterrole=muster-explain-some --user=YOU", strings.Join(resources, ",")),
	}
}
