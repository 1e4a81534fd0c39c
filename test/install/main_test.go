package install

import (
	"flag"

	"k8s.io/apimachinery/pkg/api/resource"
)

var update = flag.Bool("update", false, "write the Kustomize base again")

func amount(text string) resource.Quantity { return resource.MustParse(text) }
