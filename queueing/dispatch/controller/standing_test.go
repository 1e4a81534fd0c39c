package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// TestACheckIsJudgedAsItIsNow: its condition is of the newest generation (Kueue 0.20, 14838).
func TestACheckIsJudgedAsItIsNow(t *testing.T) {
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere", Generation: 7}}
	got, err := (&checks{}).judge(t.Context(), ac)
	if err != nil || got.ObservedGeneration != 7 || got.Status != metav1.ConditionFalse {
		t.Errorf("it has the condition %+v: %v", got, err)
	}
}
