package cloudprovider

import (
	"strings"
	"testing"
)

func TestReadLevel(t *testing.T) {
	for _, c := range []struct {
		label, amount string
		most          int32
		wrong         string
	}{
		{"example.com/rack", "", 0, ""},
		{"rack", "18", 18, ""},
		{"a rack", "", 0, "no node label"},
		{"", "", 0, "no node label"},
		{"kubernetes.io/hostname", "", 0, "between host and zone"},
		{"topology.kubernetes.io/zone", "", 0, "between host and zone"},
		{"rack", "many", 0, `"many" is no number of machines`},
		{"rack", "0", 0, "no number of machines"},
		{"rack", "-4", 0, "no number of machines"},
		{"rack", "100001", 0, "no number of machines"},
	} {
		l, err := ReadLevel(c.label, c.amount)
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) || l.MachinesPerDomain != c.most {
			t.Errorf("%s of %q: %+v, %v; want %d, %q", c.label, c.amount, l, err, c.most, c.wrong)
		}
	}
}
