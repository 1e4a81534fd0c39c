package controller

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
)

// Reasons of the condition Active of a MultiKueueCluster, as Kueue has them.
const (
	reasonActive     = "Active"
	reasonConnection = "ClientConnectionFailed"
	reasonKubeconfig = "BadKubeConfig"
	reasonInsecure   = "InsecureKubeConfig"
	reasonProfile    = "MultiKueueClusterProfileFeatureDisabled"
)

// Reasons of Muster's own: a kubeconfig leads to another cluster than before, or to that of another MultiKueueCluster.
const (
	reasonChanged = "ClusterChanged"
	reasonSame    = "SameCluster"
)

// reasonDeleted is the reason of a MultiKueueCluster that is deleted but still has its finalizer.
const reasonDeleted = "Deleted"

// unusable is an error in the kubeconfig of a worker.
type unusable struct {
	reason string
	error
}

func badKubeconfig(format string, args ...any) error {
	return &unusable{reasonKubeconfig, fmt.Errorf(format, args...)}
}

// validate rejects the same kubeconfigs as Kueue: with them, the right to write a Secret would be enough to make the manager run a
// program, read a file, or trust any server.
func validate(kubeconfig []byte) error {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return badKubeconfig("its kubeconfig cannot be read: %v", err)
	}
	insecure := func(format string, args ...any) error {
		return &unusable{reasonInsecure, fmt.Errorf("its kubeconfig: "+format, args...)}
	}
	for name, user := range config.AuthInfos {
		switch {
		case user.TokenFile != "":
			return insecure("users[%s].tokenFile is a path; use token", name)
		case user.ClientCertificate != "" || user.ClientKey != "":
			return insecure("users[%s] has the path of a client certificate or key; use client-certificate-data and client-key-data", name)
		case user.Exec != nil || user.AuthProvider != nil:
			return insecure("users[%s] runs a program to log in; use token", name)
		case user.Username != "" || user.Password != "":
			return insecure("users[%s] logs in by username and password; use token", name)
		}
	}
	for name, cluster := range config.Clusters {
		server, err := url.Parse(strings.ToLower(cluster.Server))
		switch {
		case cluster.InsecureSkipTLSVerify:
			return insecure("clusters[%s].insecure-skip-tls-verify is true; give certificate-authority-data instead", name)
		case cluster.CertificateAuthority != "":
			return insecure("clusters[%s].certificate-authority is a path; use certificate-authority-data", name)
		case err != nil || server.Scheme != "https" || server.Hostname() == "":
			return insecure("clusters[%s].server is %q; give the https URL of the worker's API server", name, cluster.Server)
		}
	}
	return nil
}

// report writes the conditions of a worker, if they have changed.
func (s *workers) report(ctx context.Context, w *worker, why error) {
	c := &kueue.MultiKueueCluster{}
	if err := s.manager.Get(ctx, client.ObjectKey{Name: w.name}, c); err != nil {
		return // it has been deleted, or is checked again
	}
	condition := metav1.Condition{
		Type: kueue.MultiKueueClusterActive, Status: metav1.ConditionTrue, Reason: reasonActive, Message: "Connected",
		ObservedGeneration: c.Generation,
	}
	if why == nil && w.connection.mayAll {
		condition.Message += "; the account in its kubeconfig may do everything in the cluster, Secrets included: give it the rights that " +
			"muster dispatcher manifests --worker prints, and no others"
	}
	if why == nil && w.idle != "" {
		condition.Message += "; no job is given to the cluster now: " + w.idle
	}
	if why != nil {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonConnection, text.Clip(why.Error(), text.NoteLimit)
		var u *unusable
		if errors.As(why, &u) {
			condition.Reason = u.reason
		}
	}
	if w.isDeleted() {
		message := "It was deleted, and stays until its jobs and their copies have left the cluster"
		if why != nil {
			message = fmt.Sprintf("It was deleted, and its jobs start elsewhere once the cluster has not answered for %s: %v", deadAfter, why)
		}
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reasonDeleted, text.Clip(message, text.NoteLimit)
	}
	patch := client.MergeFrom(c.DeepCopy())
	active := apimeta.SetStatusCondition(&c.Status.Conditions, condition)
	if !fenced(c, w.asksFence, w.noFence) && !active {
		return
	}
	if err := s.writer.Status().Patch(ctx, c, patch); client.IgnoreNotFound(err) != nil {
		ctrl.Log.WithName("workers").Error(err, "Cannot write the status of a MultiKueueCluster", "cluster", w.name)
	}
}

// checks reconciles the condition Active of the AdmissionChecks of MultiKueue.
type checks struct{ client client.Client }

func addChecks(mgr ctrl.Manager) error {
	c := &checks{mgr.GetClient()}
	return ctrl.NewControllerManagedBy(mgr).Named("multikueue-checks").
		For(&kueue.AdmissionCheck{}).
		Watches(&kueue.MultiKueueConfig{}, handler.EnqueueRequestsFromMapFunc(c.all)).
		Watches(&kueue.MultiKueueCluster{}, handler.EnqueueRequestsFromMapFunc(c.all)).
		Complete(c)
}

func (c *checks) all(ctx context.Context, _ client.Object) (out []reconcile.Request) {
	list := &kueue.AdmissionCheckList{}
	if err := c.client.List(ctx, list); err != nil {
		return nil // the initial list enqueues each check
	}
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// Reconcile implements reconcile.Reconciler.
func (c *checks) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ac := &kueue.AdmissionCheck{}
	if err := c.client.Get(ctx, request.NamespacedName, ac); err != nil || ac.Spec.ControllerName != kueue.MultiKueueControllerName {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	condition, err := c.judge(ctx, ac)
	if err != nil {
		return reconcile.Result{}, err
	}
	patch := client.MergeFrom(ac.DeepCopy())
	if !apimeta.SetStatusCondition(&ac.Status.Conditions, condition) {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, client.IgnoreNotFound(c.client.Status().Patch(ctx, ac, patch))
}

// judge returns the condition of the check: whether it has a cluster that jobs can go to.
func (c *checks) judge(ctx context.Context, ac *kueue.AdmissionCheck) (out metav1.Condition, err error) {
	out = metav1.Condition{
		Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: reasonActive, Message: "The admission check is active",
		ObservedGeneration: ac.Generation,
	}
	bad := func(format string, args ...any) (metav1.Condition, error) {
		out.Status, out.Reason, out.Message = metav1.ConditionFalse, "BadConfig",
			"Cannot load the AdmissionChecks parameters: "+fmt.Sprintf(format, args...)
		return out, nil
	}
	ref := ac.Spec.Parameters
	if ref == nil || ref.Kind != "MultiKueueConfig" || ref.APIGroup != kueue.SchemeGroupVersion.Group {
		return bad("spec.parameters names no MultiKueueConfig of %s", kueue.SchemeGroupVersion.Group)
	}
	config := &kueue.MultiKueueConfig{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: ref.Name}, config); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return out, err
		}
		return bad("MultiKueueConfig %q does not exist; create it or change spec.parameters.name", ref.Name)
	}
	var missing, inactive []string
	for _, name := range config.Spec.Clusters {
		cluster := &kueue.MultiKueueCluster{}
		switch err := c.client.Get(ctx, client.ObjectKey{Name: name}, cluster); {
		case client.IgnoreNotFound(err) != nil:
			return out, err
		case err != nil:
			missing = append(missing, name)
		case !apimeta.IsStatusConditionTrue(cluster.Status.Conditions, kueue.MultiKueueClusterActive):
			inactive = append(inactive, name)
		}
	}
	var words []string
	if len(missing) > 0 {
		words = append(words, fmt.Sprintf("Missing clusters: %v", missing))
	}
	if len(inactive) > 0 {
		words = append(words, fmt.Sprintf("Inactive clusters: %v", inactive))
	}
	note := ""
	if mode := config.Spec.QuotaManagement; mode != nil && *mode != kueue.QuotaManagementManual {
		note = fmt.Sprintf("; spec.quotaManagement of MultiKueueConfig %q is %s, which has no effect, as by default in Kueue: set the quota of "+
			"the ClusterQueues here, and Manual there", config.Name, *mode)
	}
	switch {
	case len(words) == 0:
		out.Message += note
		return out, nil
	case len(missing)+len(inactive) == len(config.Spec.Clusters):
		out.Status, out.Reason = metav1.ConditionFalse, "NoUsableClusters"
	default:
		out.Reason = "SomeActiveClusters"
	}
	out.Message = strings.Join(words, ", ") + note
	return out, nil
}
