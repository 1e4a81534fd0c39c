// Command twin reads objects as lines of JSON, and prints for each the podSets of Kueue's integration of its kind. "twin samples" prints
// objects of each kind, built as Kueue's own tests build theirs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	_ "sigs.k8s.io/kueue/pkg/controller/jobs"
)

type answer struct {
	// PodSets are those of all Workloads of the object, which are named where an integration makes them itself.
	PodSets   []kueue.PodSet
	Workloads []string `json:",omitempty"`
	// JobSet is what Trainer makes of a TrainJob.
	JobSet any `json:",omitempty"`
	Error  string
}

func main() {
	ctrl.SetLogger(zap.New(zap.WriteTo(os.Stderr)))
	out := json.NewEncoder(os.Stdout)
	if len(os.Args) > 1 {
		for _, o := range samples() {
			must(out.Encode(o))
		}
		return
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		a, err := answerFor(in.Bytes())
		if err != nil {
			a.Error = err.Error()
		}
		must(out.Encode(a))
	}
	must(in.Err())
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// object is one of a line; a List has several.
type object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func answerFor(text []byte) (answer, error) {
	var o object
	must(json.Unmarshal(text, &o))
	switch o.Kind {
	case "List":
		return answerForList(o.Items)
	case "Pod", "StatefulSet", "LeaderWorkerSet":
		return made(o.Kind, text)
	}
	integration, known := jobframework.GetIntegrationByGVK(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
	if !known {
		return answer{}, fmt.Errorf("no integration has the kind %s", o.Kind)
	}
	job := integration.NewJob()
	if err := json.Unmarshal(text, job.Object()); err != nil {
		return answer{}, err
	}
	podSets, err := job.PodSets(context.Background(), nil)
	return answer{PodSets: podSets}, err
}
