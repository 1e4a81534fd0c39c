package aws

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

const quotasTarget = "ServiceQuotasV20190624."

// listServiceQuotas answers with the quotas of EC2.
func (f *Front) listServiceQuotas(w http.ResponseWriter, r *http.Request) {
	var in struct {
		ServiceCode, NextToken string

		MaxResults int
	}
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil || in.ServiceCode != "ec2" || in.MaxResults < 0 || in.MaxResults > 100 {
		panic(&cloudsim.Error{Status: http.StatusBadRequest, Code: "IllegalArgumentException",
			Message: fmt.Sprintf("ServiceCode is %q and MaxResults %d: only ec2 is simulated, by pages of 1 to 100: %v", in.ServiceCode,
				in.MaxResults, err)})
	}
	type quota struct {
		ServiceCode, ServiceName, QuotaArn, QuotaCode, QuotaName, Unit string

		Value                   float64
		Adjustable, GlobalQuota bool
	}
	list := []quota{}
	for _, q := range f.config.Quotas {
		list = append(list, quota{
			ServiceCode: "ec2", ServiceName: "Amazon Elastic Compute Cloud (Amazon EC2)", QuotaCode: q.Code, QuotaName: q.Name, Unit: "None",
			QuotaArn: "arn:aws:servicequotas:" + f.config.Region + ":111122223333:ec2/" + q.Code, Value: q.Value, Adjustable: true,
		})
	}
	size := in.MaxResults
	if most := f.config.PageSize; most > 0 && (size == 0 || most < size) {
		size = most
	}
	writePage(w, map[string]any{}, "Quotas", list, size, in.NextToken)
}
