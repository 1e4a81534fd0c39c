package architecture

import (
	"go/ast"
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
