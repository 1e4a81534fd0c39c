package submit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/workload"
)

// parsed are the options of a command line.
func parsed(t *testing.T, line string) Options {
	t.Helper()
	o := Options{}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse(strings.Fields(line)); err != nil {
		t.Fatal(err)
	}
	o.Name, o.Namespace, o.Queue, o.Image, o.Command = "train", "team", "main", "train:1", []string{"python", "train.py"}
	return o
}

// podSets are what Muster queues of the job, as count × devices.
func podSets(t *testing.T, job *unstructured.Unstructured) string {
	t.Helper()
	for _, kind := range kinds.All() {
		if kind.GroupVersionKind() != job.GroupVersionKind() {
			continue
		}
		object := client.Object(job)
		if typed, err := scheme.Scheme.New(job.GroupVersionKind()); err == nil {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(job.Object, typed, true); err != nil {
				t.Fatal(err)
			}
			object = typed.(client.Object)
		}
		sets, refusals := kind.PodSets(object)
		if why := strings.TrimSpace(strings.Join(refusals, " ")); why != "" {
			t.Fatalf("it is refused: %s", why)
		}
		var out []string
		for i := range sets {
			out = append(out, fmt.Sprintf("%s %d × %d", sets[i].Name, sets[i].Count,
				workload.PodRequests(&sets[i].Template.Spec)["nvidia.com/gpu"]))
			if level := sets[i].Template.Annotations[kueue.PodSetRequiredTopologyAnnotation]; level != "" {
				out = append(out, "in one "+level)
			}
		}
		return strings.Join(out, ", ")
	}
	t.Fatalf("Muster knows no kind %s", job.GroupVersionKind())
	return ""
}

func TestPodsOfAJob(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "main 1 × 0",
		"--nodes=3":                   "main 3 × 0",
		"--gpus=4":                    "main 1 × 4",
		"--gpus=16":                   "main 2 × 8",
		"--gpus=16 --nodes=4":         "main 4 × 4",
		"--gpus=16 --gpus-per-node=4": "main 4 × 4",
		"--nodes=2 --gpus-per-node=8": "main 2 × 8",
		"--gpus=16 --topology=rack":   "main 2 × 8, in one rack",
		"--gpus=16 --kind=jobset":     "main 2 × 8",
		"--gpus=16 --kind=jobset --topology=rack":  "main 2 × 8, in one rack",
		"--gpus=8 --kind=pytorchjob":               "master 1 × 8",
		"--gpus=24 --kind=pytorchjob --retries=3":  "master 1 × 8, worker 2 × 8",
		"--gpus=2 --device=nvidia.com/gpu --cpu=4": "main 1 × 2",
	} {
		t.Run(line, func(t *testing.T) {
			objects, err := Objects(parsed(t, line))
			if err != nil {
				t.Fatal(err)
			}
			job := objects[len(objects)-1]
			if got := podSets(t, job); got != want {
				t.Errorf("it has the pods %s, want %s", got, want)
			}
			if job.GetLabels()[workload.QueueLabel] != "main" {
				t.Errorf("its labels are %v", job.GetLabels())
			}
		})
	}
}

// TestPodsFindEachOther has the service, the subdomain and the address of rank 0 agree.
func TestPodsFindEachOther(t *testing.T) {
	objects, err := Objects(parsed(t, "--gpus=16 --time=2h --priority=urgent --env=A=1 --cpu=32 --memory=1Ti"))
	if err != nil || len(objects) != 2 {
		t.Fatalf("%d objects, error %v", len(objects), err)
	}
	service, job := objects[0], objects[1]
	text := fmt.Sprint(job.Object)
	for _, want := range []string{"subdomain:" + service.GetName(), "value:train-0." + service.GetName(), "name:NNODES value:2",
		"metadata.annotations['batch.kubernetes.io/job-completion-index']", "suspend:true", "max-exec-time-seconds:7200",
		"priority-class:urgent", "name:A value:1", "cpu:32", "memory:1Ti", "completionMode:Indexed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the Job lacks %s: %s", want, text)
		}
	}
	if selector := fmt.Sprint(service.Object["spec"]); !strings.Contains(selector, "batch.kubernetes.io/job-name:train") ||
		!strings.Contains(selector, "clusterIP:None") {
		t.Errorf("the Service is %s", selector)
	}
	if strings.Contains(text, "creationTimestamp") || strings.Contains(text, "status") {
		t.Errorf("the Job has what nobody has written: %s", text)
	}
	if objects, err = Objects(parsed(t, "--gpus=8")); err != nil || len(objects) != 1 {
		t.Errorf("one pod has %d objects, error %v", len(objects), err)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	for line, want := range map[string]string{
		"--gpus=12":                             "--gpus=12: with 8 GPUs per node it must be a multiple of 8; --gpus-per-node changes that",
		"--gpus=12 --nodes=5":                   "--gpus=12: with --nodes=5 it must be a multiple of 5",
		"--gpus=16 --nodes=3 --gpus-per-node=8": "--nodes=3: 16 GPUs at --gpus-per-node=8 are 2 pods",
		"--gpus=-1":                             "--gpus=-1: give a number that is not negative",
		"--kind=deployment":                     "--kind=deployment: use one of job, jobset, pytorchjob",
		"--cpu=many":                            "--cpu=many: give a positive quantity, for example 32",
		"--memory=-1Gi":                         "--memory=-1Gi: give a positive quantity, for example 256Gi",
		"--time=1500ms":                         "--time=1.5s: give whole seconds",
	} {
		if _, err := Objects(parsed(t, line)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
	for want, change := range map[string]func(*Options){
		"--image is missing":     func(o *Options) { o.Image = "" },
		"--queue is missing":     func(o *Options) { o.Queue = "" },
		"the command is missing": func(o *Options) { o.Command = nil },
		`name "Train"`:           func(o *Options) { o.Name = "Train" },
	} {
		o := parsed(t, "")
		change(&o)
		if _, err := Objects(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestScripts(t *testing.T) {
	const text = "#!/usr/bin/env bash\n#MUSTER --name=nightly --gpus=16 --time=12h\n\n#MUSTER --env=A=1 --env=B=2 --image=train:2\n" +
		"python train.py\n#MUSTER --gpus=64\n"
	o := Options{Namespace: "team", Queue: "main"}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse([]string{"--gpus=32", "--env=B=3", "--queue=main"}); err != nil {
		t.Fatal(err)
	}
	if err := (Script{Name: "train.sh", Text: text}).Apply(&o, flags); err != nil {
		t.Fatal(err)
	}
	if o.Name != "nightly" || o.GPUs != 32 || o.Time != 12*time.Hour || o.Image != "train:2" || o.Env["A"] != "1" || o.Env["B"] != "3" {
		t.Errorf("the options are %+v", o)
	}
	if got := strings.Join(o.Command[:3], " "); got != "/usr/bin/env bash -c" || o.Command[3] != text {
		t.Errorf("the command is %q", o.Command)
	}
	for text, want := range map[string]string{
		"python train.py\n":                          "train.sh: the first line names no interpreter",
		"#!/bin/sh\n#MUSTER --gpu=8\n":               "train.sh:2: #MUSTER --gpu=8: unknown flag: --gpu",
		"#!/bin/sh\n#MUSTER gpus 8\n":                "train.sh:2: #MUSTER gpus 8: use --FLAG=VALUE",
		"#!/bin/sh\n" + strings.Repeat("x", 100_000): "put it into the image",
	} {
		o, flags := Options{}, pflag.NewFlagSet("run", pflag.ContinueOnError)
		o.AddFlags(flags)
		if err := (Script{Name: "train.sh", Text: text}).Apply(&o, flags); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
