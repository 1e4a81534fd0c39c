package jobs

import (
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxName is how long an object's name may be.
	maxName = 253
	// hashLength is how many hex digits of the hash end a Workload's name.
	hashLength = 5
)

// WorkloadName is the name of a job's Workload. It is Kueue's, so that a cluster that
// has used Kueue keeps its Workloads: the kind and name of the owner, and a hash of
// these, its group and its UID. An elastic job may have several Workloads, so its
// generation is part of the hash, and that of the object which is scaled in its place.
func WorkloadName(kind schema.GroupVersionKind, job metav1.Object) string {
	parts := []string{kind.Kind, kind.Group, job.GetName(), string(job.GetUID())}
	if IsElastic(job) {
		extra := strconv.FormatInt(job.GetGeneration(), 10)
		if scaled := job.GetAnnotations()[ScaledGenerationAnnotation]; scaled != "" {
			extra += "_" + scaled
		}
		parts = append(parts, extra)
	}
	sum := sha1.Sum([]byte(strings.Join(parts, "\n")))
	prefix := strings.ToLower(kind.Kind) + "-" + job.GetName()
	if limit := maxName - hashLength - 1; len(prefix) > limit {
		prefix = prefix[:limit]
	}
	return prefix + "-" + hex.EncodeToString(sum[:])[:hashLength]
}
