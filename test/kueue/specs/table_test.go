package specs

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// table is testdata/exceptions.yaml.
type table struct {
	Suites []suite `json:"suites"`
	// NotRun are suites that are left out as a whole, each with the reason.
	NotRun []struct {
		Path string `json:"path"`
		Why  string `json:"why"`
	} `json:"notRun"`
}

// suite is a package of Kueue's specs.
type suite struct {
	// Path of its folder, below that of the suites of a single cluster.
	Path       string      `json:"path"`
	Exceptions []exception `json:"exceptions"`
}

// exception is about specs that are not expected to pass. Exactly one of NotApply and Differs is set.
type exception struct {
	// Specs is a regular expression of their whole names.
	Specs string `json:"specs"`
	// NotApply is why Muster cannot be judged by them.
	NotApply string `json:"notApply"`
	// Differs is what Muster does otherwise, or does not do.
	Differs string `json:"differs"`

	pattern *regexp.Regexp
}

func readTable(t *testing.T) table {
	t.Helper()
	text, err := os.ReadFile("testdata/exceptions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out table
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	for i := range out.Suites {
		for j := range out.Suites[i].Exceptions {
			e := &out.Suites[i].Exceptions[j]
			if (e.NotApply == "") == (e.Differs == "") {
				t.Errorf("%s: %q needs one of notApply and differs", out.Suites[i].Path, e.Specs)
			}
			if e.pattern, err = regexp.Compile(e.Specs); err != nil {
				t.Fatal(err)
			}
		}
	}
	return out
}

// exceptionFor is the first one that is about the spec; nil if it is expected to pass.
func (s suite) exceptionFor(name string) *exception {
	for i := range s.Exceptions {
		if s.Exceptions[i].pattern.MatchString(name) {
			return &s.Exceptions[i]
		}
	}
	return nil
}

// skips are the flags that leave out the specs that do not apply. The name that these are compared with begins with that of the suite.
func (s suite) skips() (out []string) {
	for _, e := range s.Exceptions {
		if e.NotApply != "" {
			out = append(out, "-ginkgo.skip="+strings.TrimPrefix(e.Specs, "^"))
		}
	}
	return out
}

// report is what is read of a suite's report in JSON.
type report struct {
	SpecReports []spec
}

type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeType            string
	LeafNodeText            string
	State                   string
	RunTime                 int64
	Failure                 struct {
		Message  string
		Location struct {
			FileName   string
			LineNumber int
		}
	}
}

func (s spec) name() string {
	return strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
}

// readReport returns the specs of a report, and what failed beside them.
func readReport(t *testing.T, file string) (specs, beside []spec) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var reports []report
	if err := json.Unmarshal(text, &reports); err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		for _, s := range r.SpecReports {
			switch {
			case s.LeafNodeType == "It":
				specs = append(specs, s)
			case s.State != "passed":
				beside = append(beside, s)
			}
		}
	}
	return specs, beside
}
