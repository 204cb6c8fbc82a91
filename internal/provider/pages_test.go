package provider

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// roundTrip is a transport.
type roundTrip func(*http.Request) string

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(f(r)))}, nil
}

// pagedLists are the ways in which vendors cut the list of a zone into pages. page is the answer with one record, of so
// many pages; for the last page of GoDaddy it is one without records.
var pagedLists = map[string]struct {
	open  func(Credentials) (*Client, error)
	page  func(page, pages int) string
	none  string // the answer without records
	whole bool   // the first page tells the length
}{
	"route53": {open: NewRoute53, page: func(page, pages int) string {
		return fmt.Sprintf(`<ListResourceRecordSetsResponse><ResourceRecordSets><ResourceRecordSet><Name>n%d.example.com.</Name><Type>TXT</Type><TTL>60</TTL>`+
			`<ResourceRecords><ResourceRecord><Value>"x"</Value></ResourceRecord></ResourceRecords></ResourceRecordSet></ResourceRecordSets>`+
			`<IsTruncated>%t</IsTruncated><NextRecordName>n%d.example.com.</NextRecordName><NextRecordType>TXT</NextRecordType></ListResourceRecordSetsResponse>`,
			page, page < pages, page+1)
	}},
	"baiducloud": {open: NewBaiduCloud, page: func(page, pages int) string {
		return fmt.Sprintf(`{"isTruncated":%t,"nextMarker":"%d","records":[{"id":"%[2]d","rr":"n%[2]d","type":"TXT","value":"x","ttl":300}]}`, page < pages, page)
	}},
	"godaddy": {open: NewGoDaddy, none: `[]`, page: func(page, pages int) string {
		if page == pages {
			return `[]`
		}
		return fmt.Sprintf(`[{"type":"TXT","name":"n%d","data":"x","ttl":600}]`, page)
	}},
	"cloudflare": {open: NewCloudflare, none: `{"success":true,"result":[],"result_info":{"total_count":0}}`, whole: true, page: func(page, pages int) string {
		return fmt.Sprintf(`{"success":true,"result":[{"id":"%d","name":"n%[1]d.example.com","type":"TXT","content":"x","ttl":60}],"result_info":{"total_count":%d}}`, page, pages)
	}},
}

// TestLongestLists reads lists of 1000 pages, and has its names read one by one where a list has one more.
func TestLongestLists(t *testing.T) {
	standard := httpClient.Transport
	defer func() { httpClient.Transport = standard }()
	for name, l := range pagedLists {
		for _, pages := range []int{1000, 1001} {
			client, err := l.open(Credentials{AccessKeyID: "id", AccessKeySecret: "secret", Endpoint: "https://192.0.2.1"})
			if err != nil {
				t.Fatal(err)
			}
			asked := 0
			httpClient.Transport = roundTrip(func(r *http.Request) string {
				if strings.Contains(r.URL.String(), "CNAME") {
					return l.none
				}
				asked++
				return l.page(asked, pages)
			})
			z, sets := zone{id: "example.com", name: "example.com"}, newZoneSets(nil, TXT)
			err = client.listZone(t.Context(), z, sets)
			if pages == 1000 && (err != nil || asked != pages || len(sets.sets) < pages-1) {
				t.Errorf("%s: %d pages: %d names after %d calls, %v", name, pages, len(sets.sets), asked, err)
			}
			if pages > 1000 && (!errors.Is(err, ErrNotListed) || asked > 1000 || l.whole && asked > 1) {
				t.Errorf("%s: %d pages: %v after %d calls", name, pages, err, asked)
			}
		}
	}
}
