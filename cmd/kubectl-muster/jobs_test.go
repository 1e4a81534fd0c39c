package main

import (
	"context"
	"encoding/json"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/workload"
)

// TestJobsOfAUser are those that the user has created: one that is named, or the caller by the name that the API server has for it.
func TestJobsOfAUser(t *testing.T) {
	by := func(user string) func(*kueue.Workload) {
		return func(w *kueue.Workload) { w.Annotations = map[string]string{workload.SubmittedByAnnotation: user} }
	}
	for _, tt := range []struct {
		name, user string
		objects    []client.Object
		want       string
	}{
		{"the caller", "", []client.Object{waiting("hers", 1, by("alice")), waiting("his", 1, by("bob")), waiting("old", 1, nil)}, "workload/hers"},
		{"another one", "bob", []client.Object{waiting("hers", 1, by("alice")), waiting("his", 1, by("bob"))}, "workload/his"},
		{"one without jobs", "eve", []client.Object{waiting("hers", 1, by("alice"))}, "No job in a queue has the user eve.\n"},
		{"where none is recorded", "eve", []client.Object{waiting("old", 1, nil)},
			"No job in a queue has the user eve. No job has one: users are recorded with the setting queueing.recordUsers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := fakeCluster{objects: append(tt.objects, team("team", nil, "h100=8"), flavor("h100"))}
			kube := interceptor.NewClient(c.client(t).(client.WithWatch), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					o.(*authenticationv1.SelfSubjectReview).Status.UserInfo.Username = "alice"
					return nil
				},
			})
			o := &options{config: genericclioptions.NewConfigFlags(true), clock: clocktesting.NewFakeClock(noon), kube: kube}
			user := tt.user
			if user == "" {
				var err error
				if user, err = o.username(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			a, err := o.jobs(t.Context(), view.JobStates, user)
			if err != nil {
				t.Fatal(err)
			}
			lacks(t, printed(t, a), tt.want)
			text, err := json.Marshal(a)
			if err != nil {
				t.Fatal(err)
			}
			var lines []view.JobLine
			if err := json.Unmarshal(text, &lines); err != nil || len(lines) > 1 || len(lines) == 1 && lines[0].User != user {
				t.Errorf("as JSON: %s (%v)", text, err)
			}
		})
	}
}
