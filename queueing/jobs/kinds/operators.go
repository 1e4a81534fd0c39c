package kinds

import "strings"

// Operator is the project whose controller runs the jobs of a kind, with the version that Muster is tested with.
type Operator struct{ Name, Version string }

// operators by kind. Those of Kubernetes itself and of users have none.
var operators = map[string]Operator{
	"AppWrapper":       {"the AppWrapper controller", "v1.2.2"},
	"JAXJob":           trainingOperator,
	"JobSet":           {"the JobSet controller", "v0.12.0"},
	"LeaderWorkerSet":  {"the LeaderWorkerSet controller", "v0.9.0"},
	"MPIJob":           {"the MPI operator", "v0.8.2"},
	"PaddleJob":        trainingOperator,
	"PyTorchJob":       trainingOperator,
	"RayCluster":       kubeRay,
	"RayJob":           kubeRay,
	"RayService":       kubeRay,
	"SparkApplication": {"the Spark operator", "v2.5.1"},
	"TFJob":            trainingOperator,
	"TrainJob":         {"Kubeflow Trainer", "v2.2.1"},
	"XGBoostJob":       trainingOperator,
}

var (
	trainingOperator = Operator{"the Kubeflow training operator", "v1.9.3"}
	kubeRay          = Operator{"KubeRay", "v1.6.2"}
)

// OperatorOf returns the operator of a kind, which may be given in lower case, as in a command, or in the plural, as in a URL.
func OperatorOf(kind string) (of Operator, known bool) {
	for name, o := range operators {
		if lower := strings.ToLower(name); lower == strings.ToLower(kind) || lower+"s" == strings.ToLower(kind) {
			return o, true
		}
	}
	return of, false
}
