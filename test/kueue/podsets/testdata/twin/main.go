// Command twin answers lines of JSON, each an object, with the pod sets that Kueue's integration of
// its kind gives it. Called as "twin samples" it prints objects of each kind, made as Kueue's own
// tests make theirs.
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
	PodSets []kueue.PodSet
	Error   string
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
		podSets, err := podSetsOf(in.Bytes())
		a := answer{PodSets: podSets}
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

func podSetsOf(text []byte) ([]kueue.PodSet, error) {
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	must(json.Unmarshal(text, &kind))
	integration, known := jobframework.GetIntegrationByGVK(schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind))
	if !known {
		return nil, fmt.Errorf("no integration has the kind %s", kind.Kind)
	}
	job := integration.NewJob()
	if err := json.Unmarshal(text, job.Object()); err != nil {
		return nil, err
	}
	return job.PodSets(context.Background(), nil)
}
