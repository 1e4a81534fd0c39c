package components

import (
	"runtime/debug"
	"strings"
	_ "unsafe" // for go:linkname

	"k8s.io/component-base/version"
)

// The version that the Kubernetes components and kubectl report. The linker sets it in our Makefile, as in Kubernetes'
// own; `go install` does not, and then `kubectl version` would fail on the placeholder that stands there.
var (
	//go:linkname gitVersion k8s.io/component-base/version.gitVersion
	gitVersion string
	//go:linkname gitMajor k8s.io/component-base/version.gitMajor
	gitMajor string
	//go:linkname gitMinor k8s.io/component-base/version.gitMinor
	gitMinor string
)

const kubernetesModule = "k8s.io/kubernetes"

func init() {
	info, ok := debug.ReadBuildInfo()
	if !ok || !strings.Contains(gitVersion, "$Format") {
		return
	}
	for _, module := range info.Deps {
		if module.Path == kubernetesModule {
			setVersion(module.Version)
		}
	}
}

func setVersion(built string) {
	parts := strings.SplitN(strings.TrimPrefix(built, "v"), ".", 3)
	if len(parts) < 3 {
		return
	}
	gitVersion, gitMajor, gitMinor = built, parts[0], parts[1]
	_ = version.SetDynamicVersion(built) // it cannot fail, since built is now the default that it is compared with
}
