package purchases

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-dev/muster/provisioning/text"
)

// Undone is the cause of machines in vain if no NodeGroup caused the failure: the request was deleted or expired, or others took its room.
const Undone = "Undone"

// Vain is what machines of one cause have cost that were launched for the gang and never served it, from their start until their launch
// failed.
type Vain struct {
	// Cause is the class of the failure, or Undone.
	Cause    string
	Machines int
	// MicroUSD is their cost in millionths of a USD.
	MicroUSD int64
}

// Wasted adds machines in vain.
func (p Record) Wasted(v Vain) Record {
	all := p.InVain()
	i := slices.IndexFunc(all, func(o Vain) bool { return o.Cause == v.Cause })
	if i < 0 {
		all = append(all, Vain{Cause: v.Cause})
		i = len(all) - 1
	}
	all[i].Machines += v.Machines
	all[i].MicroUSD += v.MicroUSD
	slices.SortFunc(all, func(a, b Vain) int { return cmp.Compare(a.Cause, b.Cause) })
	var out []string
	for _, o := range all {
		out = append(out, fmt.Sprintf("%s:%d:%d", o.Cause, o.Machines, o.MicroUSD))
	}
	p.Vain = strings.Join(out, " ")
	return p
}

// InVain returns the machines in vain, by cause. Entries that do not parse are skipped.
func (p *Record) InVain() (out []Vain) {
	for _, one := range strings.Fields(p.Vain) {
		part := strings.Split(one, ":")
		if len(part) != 3 {
			continue
		}
		machines, err := strconv.Atoi(part[1])
		micro, notNumber := strconv.ParseInt(part[2], 10, 64)
		if err == nil && notNumber == nil {
			out = append(out, Vain{part[0], machines, micro})
		}
	}
	return out
}

// SayVain says what launches in vain have cost, by cause; it is empty if there were none.
func (p *Record) SayVain() string {
	var causes []string
	var sum int64
	for _, v := range p.InVain() {
		sum += v.MicroUSD
		causes = append(causes, fmt.Sprintf("%s USD for %s (%s)", text.Dollars(v.MicroUSD), text.Machines(v.Machines), v.Cause))
	}
	if len(causes) == 0 {
		return ""
	}
	return fmt.Sprintf("launches in vain have cost %s USD so far: %s", text.Dollars(sum), strings.Join(causes, ", "))
}
