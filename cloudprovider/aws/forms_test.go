package aws

import (
	"go/ast"
	"go/build"
	"go/parser"
	gotoken "go/token"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"

	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/asg"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
)

// requiredIn are the fields that a package of the SDK documents as required, by type. They come from the model of the service.
func requiredIn(t *testing.T, pkg string) map[string][]string {
	t.Helper()
	at, err := build.Import(pkg, ".", build.FindOnly)
	if err != nil {
		t.Fatal(err)
	}
	file, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(at.Dir, "types.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok {
			return true
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return true
		}
		for _, f := range fields.Fields.List {
			if strings.Contains(f.Doc.Text(), "This member is required.") {
				out[spec.Name.Name] = append(out[spec.Name.Name], f.Names[0].Name)
			}
		}
		return true
	})
	return out
}

// lacking are the required fields that an answer lacks, and how many it has.
func lacking(v reflect.Value, required map[string][]string) (lacks []string, has int) {
	within := func(v reflect.Value) {
		l, h := lacking(v, required)
		lacks, has = append(lacks, l...), has+h
	}
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			within(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			within(v.Index(i))
		}
	case reflect.Struct:
		for _, name := range required[v.Type().Name()] {
			if f := v.FieldByName(name); f.IsZero() {
				lacks = append(lacks, v.Type().Name()+"."+name)
			} else {
				has++
			}
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				within(v.Field(i))
			}
		}
	}
	return lacks, has
}

// The simulated Auto Scaling answers with all that its model requires.
func TestAnswersHaveWhatTheModelRequires(t *testing.T) {
	s, g := ownedGroup(t, plenty(), func(c *simaws.Config) {
		c.Policies = []simaws.GroupItem{{Group: group, Name: "cpu"}}
		c.Schedules = []simaws.GroupItem{{Group: group, Name: "night"}}
		c.Refreshes = []simaws.Refresh{{Group: group, Status: "InProgress"}}
		c.Groups[0].Mixed = &simaws.Mixed{Types: []string{kind}, OnDemandPercent: 100}
		c.Groups[0].WarmPool = true
	})
	p := s.provider()
	machines := s.launched(p, g, 2)
	client, err := api.New(t.Context(), api.Config{Region: region, Endpoint: s.server.URL, Unpaced: true})
	if err != nil {
		t.Fatal(err)
	}
	required := requiredIn(t, path.Join(reflect.TypeFor[autoscaling.Client]().PkgPath(), "types"))
	for name, read := range map[string]func() (any, error){
		"DescribeAutoScalingGroups":    func() (any, error) { return asg.Find(t.Context(), client, group) },
		"DescribeAutoScalingInstances": func() (any, error) { return client.DescribeAutoScalingInstances(t.Context(), names(machines)) },
		"DescribeInstanceRefreshes":    func() (any, error) { return client.DescribeInstanceRefreshes(t.Context(), group) },
		"DescribePolicies": func() (any, error) {
			return client.DescribePolicies(t.Context(), &autoscaling.DescribePoliciesInput{})
		},
		"DescribeScheduledActions": func() (any, error) {
			return client.DescribeScheduledActions(t.Context(), &autoscaling.DescribeScheduledActionsInput{})
		},
	} {
		answer, err := read()
		if err != nil {
			t.Fatal(err)
		}
		lacks, has := lacking(reflect.ValueOf(answer), required)
		if len(lacks) > 0 || has == 0 && name == "DescribeAutoScalingGroups" {
			t.Errorf("%s lacks %v and has %d required fields", name, lacks, has)
		}
	}
}
