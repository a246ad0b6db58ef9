package auth

import (
	"context"
	"fmt"
	"path"
	"strings"
	"unicode"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// What a method may need beside a role.
const (
	nobody access.Role = "nobody" // no caller is asked who it is
	known  access.Role = "known"  // whoever is known, in any role
)

// need is what a method needs at least. Handlers ask for more where a request does: an apply that enforces at once is an
// operator's.
type need struct {
	role   access.Role
	action rollout.Action // as which an attempt without the role is recorded; "": it is not
}

// tallyReport is the method by which sidecars report. Package xdspb has its name as well, and is not known here.
const tallyReport = "/headgate.xds.v1.TallyService/Report"

var methods = map[string]need{
	grpc_health_v1.Health_Check_FullMethodName: {role: nobody},
	grpc_health_v1.Health_List_FullMethodName:  {role: nobody},
	grpc_health_v1.Health_Watch_FullMethodName: {role: nobody},

	reflection.ServerReflection_ServerReflectionInfo_FullMethodName:      {role: known},
	reflectionalpha.ServerReflection_ServerReflectionInfo_FullMethodName: {role: known},

	discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName:  {role: access.Sidecar},
	discovery.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName: {role: access.Sidecar},

	tallyReport: {role: access.Sidecar},

	adminpb.AdminService_WhoAmI_FullMethodName: {role: known},

	adminpb.AdminService_Apply_FullMethodName:          {access.Editor, rollout.ActionApply},
	adminpb.AdminService_Promote_FullMethodName:        {access.Operator, rollout.ActionPromote},
	adminpb.AdminService_Pause_FullMethodName:          {access.Operator, rollout.ActionPause},
	adminpb.AdminService_Rollback_FullMethodName:       {access.Operator, rollout.ActionRollback},
	adminpb.AdminService_RollbackDomain_FullMethodName: {access.Operator, rollout.ActionRollbackDomain},
	adminpb.AdminService_Delete_FullMethodName:         {access.Operator, rollout.ActionDelete},
	adminpb.AdminService_Freeze_FullMethodName:         {access.Operator, rollout.ActionFreeze},
	adminpb.AdminService_Unfreeze_FullMethodName:       {access.Operator, rollout.ActionUnfreeze},
	adminpb.AdminService_SetOverride_FullMethodName:    {access.Operator, rollout.ActionOverride},
	adminpb.AdminService_DeleteOverride_FullMethodName: {access.Operator, rollout.ActionDeleteOverride},

	adminpb.AdminService_ListRules_FullMethodName:     {role: access.Viewer},
	adminpb.AdminService_ListDomains_FullMethodName:   {role: access.Viewer},
	adminpb.AdminService_ListOverrides_FullMethodName: {role: access.Viewer},
	adminpb.AdminService_GetRollout_FullMethodName:    {role: access.Viewer},
	adminpb.AdminService_WatchRollout_FullMethodName:  {role: access.Viewer},
	adminpb.AdminService_History_FullMethodName:       {role: access.Viewer},
	adminpb.AdminService_ListAudit_FullMethodName:     {role: access.Viewer},
	adminpb.AdminService_ListNodes_FullMethodName:     {role: access.Viewer},
	adminpb.AdminService_DescribeNode_FullMethodName:  {role: access.Viewer},
	adminpb.AdminService_Await_FullMethodName:         {role: access.Viewer},

	adminpb.AdminService_ListAlerts_FullMethodName:  {role: access.Viewer},
	adminpb.AdminService_ListTargets_FullMethodName: {role: access.Viewer},
	adminpb.AdminService_Silence_FullMethodName:     {access.Operator, rollout.ActionSilence},
	adminpb.AdminService_Unsilence_FullMethodName:   {access.Operator, rollout.ActionUnsilence},
	adminpb.AdminService_TestAlerts_FullMethodName:  {access.Operator, rollout.ActionTestAlert},

	adminpb.AdminService_Stats_FullMethodName:    {role: access.Viewer},
	adminpb.AdminService_Overview_FullMethodName: {role: access.Viewer},
	adminpb.AdminService_Top_FullMethodName:      {role: access.Viewer},
	adminpb.AdminService_KeyRates_FullMethodName: {role: access.Viewer},
	adminpb.AdminService_Lookup_FullMethodName:   {role: access.Viewer},

	adminpb.AdminService_ReplaceLineage_FullMethodName:   {access.Admin, rollout.ActionReplaceLineage},
	adminpb.AdminService_CreateCredential_FullMethodName: {access.Admin, rollout.ActionAddCredential},
	adminpb.AdminService_ListCredentials_FullMethodName:  {role: access.Admin},
	adminpb.AdminService_RevokeCredential_FullMethodName: {access.Admin, rollout.ActionRevokeCredential},
}

// mayCall returns nil when the identity has the role that the method needs, in whichever domain.
func mayCall(i access.Identity, method string) error {
	needed, ok := methods[method]
	switch {
	case !ok:
		return fmt.Errorf("%w: nobody may call %s: what it needs is written nowhere", rules.ErrForbidden, method)
	case needed.role == nobody, needed.role == known:
		return nil
	}
	i.Domains = nil // the handler knows which domain the call is about
	if err := i.May(needed.role, ""); err != nil {
		return fmt.Errorf("%s: %w", words(method), err)
	}
	return nil
}

// words are a method as people say it: "set override" for /headgate.admin.v1.AdminService/SetOverride.
func words(method string) string {
	var b strings.Builder
	for i, r := range path.Base(method) {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte(' ')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// record has an attempt written down that never came to its handler, with what the request says it was about.
func (a *Authenticator) record(ctx context.Context, who access.Identity, method string, req any, refusal error) error {
	action := methods[method].action
	if action == "" || a.options.Refused == nil {
		return refusal
	}
	var domain, target string
	if r, ok := req.(interface{ GetDomain() string }); ok && rules.CheckName(r.GetDomain()) == "" {
		domain, target = r.GetDomain(), r.GetDomain()
		if r, ok := req.(interface{ GetRule() string }); ok && rules.CheckName(r.GetRule()) == "" {
			target += "/" + r.GetRule()
		}
	}
	return a.options.Refused(ctx, domain, action, target, rollout.Why{Who: who}, refusal)
}
