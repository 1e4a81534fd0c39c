package gcp

import (
	_ "cloud.google.com/go/compute/apiv1"
	_ "google.golang.org/api/cloudbilling/v1"
)
