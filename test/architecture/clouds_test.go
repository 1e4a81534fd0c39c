package architecture

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

const (
	awsAPI      = "cloudprovider/aws/api"
	awsSDK      = "github.com/aws/aws-sdk-go-v2/"
	awsServices = awsSDK + "service/"
)

// awsCalls are the packages by which calls to AWS are made. Those of the services have their types, too.
var awsCalls = []string{awsSDK + "config", awsSDK + "credentials", awsSDK + "aws/retry", awsSDK + "aws/signer", awsSDK + "aws/transport",
	"github.com/aws/smithy-go"}

// Deadline, limiter, permit, class of error and metric of a call to AWS are those of one package, so no other makes a client of a service
// or a paginator.
func TestAWSIsCalledByItsAPIPackage(t *testing.T) {
	for _, room := range append([]string{"cmd"}, rooms...) {
		for _, dir := range folders(t, room) {
			if dir == awsAPI {
				continue
			}
			for name, file := range parse(t, dir) {
				var services []string
				for _, p := range imports(t, file) {
					if slices.ContainsFunc(awsCalls, func(bad string) bool { return p == bad || strings.HasPrefix(p, bad+"/") }) {
						t.Errorf("%s imports %s: calls to AWS are made by %s", name, p, awsAPI)
					}
					if strings.HasPrefix(p, awsServices) && path.Dir(p)+"/" == awsServices {
						services = append(services, path.Base(p))
					}
				}
				ast.Inspect(file, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					x, ok := sel.X.(*ast.Ident)
					if ok && slices.Contains(services, x.Name) && strings.HasPrefix(sel.Sel.Name, "New") {
						t.Errorf("%s uses %s.%s: calls to AWS are made by %s", name, x.Name, sel.Sel.Name, awsAPI)
					}
					return true
				})
			}
		}
	}
}

// cloudRooms may name a cloud, each with its why. Their subfolders may, too.
var cloudRooms = map[string]string{
	"cloudprovider/aws":        "the adapter",
	"cloudprovider/gcp":        "the adapter",
	"nodegroups":               "the API has a member of the spec for each cloud, and clouds.go reads it",
	"cmd/muster/app":           "muster cloud-check connects to the one that its arguments name",
	"cmd/muster/clouds":        "it connects the adapters",
	"cmd/muster/configuration": "it has the settings of each cloud",
	"cmd/muster-sandbox":       "it simulates them",
}

// cloudNames are the names of a cloud in code: of a provider, of its member of the spec, and of the scheme of its provider IDs.
var cloudNames = []string{"aws", "gcp", "gce"}

// A new cloud is added without a change to plans, launches, queues and views, so none of them may name one.
func TestCloudsAreNamedByTheirAdaptersAlone(t *testing.T) {
	for _, room := range append([]string{"cmd"}, rooms...) {
		for _, dir := range folders(t, room) {
			if inCloudRoom(dir) {
				continue
			}
			for _, file := range parse(t, dir) {
				ast.Inspect(file, func(n ast.Node) bool {
					if named := cloudOf(n); named != "" {
						t.Errorf("%s names a cloud: %s. Ask the adapter, or nodegroups where the spec says it", fset.Position(n.Pos()), named)
					}
					return true
				})
			}
		}
	}
}

func inCloudRoom(dir string) bool {
	for room := range cloudRooms {
		if dir == room || strings.HasPrefix(dir, room+"/") {
			return true
		}
	}
	return false
}

// cloudOf returns the name of a cloud that the node is, such as spec.AWS, v1alpha1.GCPGroup, ProviderAWS or "gce"; else nothing.
func cloudOf(n ast.Node) string {
	switch n := n.(type) {
	case *ast.SelectorExpr:
		name := strings.TrimPrefix(n.Sel.Name, "Provider")
		x, _ := n.X.(*ast.Ident)
		ours := x != nil && x.Name == "v1alpha1"
		for _, cloud := range cloudNames {
			upper := strings.ToUpper(cloud)
			if name == upper || ours && strings.HasPrefix(name, upper) {
				return n.Sel.Name
			}
		}
	case *ast.BasicLit:
		text := strings.Trim(n.Value, "`\"")
		scheme, _, _ := strings.Cut(text, "://")
		if n.Kind == token.STRING && slices.Contains(cloudNames, scheme) {
			return n.Value
		}
	}
	return ""
}
