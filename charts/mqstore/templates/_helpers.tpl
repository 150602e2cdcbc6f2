{{/* At most 52 characters are allowed in the name of a CronJob: this and -expiry-report. */}}
{{- define "mqstore.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 38 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 38 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 38 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of selectors: without the version, which changes. Called with (dict "root" $ "component" NAME). */}}
{{- define "mqstore.selector" -}}
app.kubernetes.io/name: mqstore
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "mqstore.labels" -}}
{{ include "mqstore.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: mqstore
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "mqstore.podLabels" -}}
{{ include "mqstore.labels" . }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "mqstore.podAnnotations" -}}
checksum/config: {{ include (print .Template.BasePath "/configmap.yaml") . | sha256sum }}
{{- with .Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of pods that end by themselves, and have no configuration to follow. */}}
{{- define "mqstore.jobAnnotations" -}}
{{- with .Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "mqstore.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "mqstore.sparkImage" -}}
{{ .Values.sparkImage.repository }}:{{ .Values.sparkImage.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The services' image, or one with the client library of the place of backups. */}}
{{- define "mqstore.backupImage" -}}
{{ .Values.backup.image | default (include "mqstore.image" .) }}
{{- end -}}

{{/* Names of the jobs that are installed, with commas between. */}}
{{- define "mqstore.jobs" -}}
{{- if or .Values.jobs.output.uri .Values.jobs.output.existingClaim -}}expiry-report,{{- end -}}
{{- if .Values.jobs.indexRebuild.enabled -}}index-rebuild{{- end -}}
{{- end -}}

{{- define "mqstore.secret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-auth" (include "mqstore.fullname" .)) }}
{{- end -}}

{{- define "mqstore.podSecurity" -}}
runAsNonRoot: true
{{- range $field := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- with index $.Values.podSecurity $field }}
{{ $field }}: {{ int64 . }}
{{- end }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "mqstore.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Settings of every service, in every pod. */}}
{{- define "mqstore.env" -}}
- {name: MQSTORE_CONFIG_FILE, value: /etc/mqstore/config/mqstore.conf}
- {name: MQSTORE_SHARDS_FILE, value: /etc/mqstore/shards/shards.json}
- {name: MQSTORE_TOKENS_DIR, value: /etc/mqstore/tokens}
- {name: MQSTORE_HOST, value: 0.0.0.0}
- {name: MQSTORE_LOG_FORMAT, value: json}
- {name: MQSTORE_SHUTDOWN_TIMEOUT_S, value: {{ sub (int64 .Values.terminationGracePeriodSeconds) 5 | quote }}}
{{- end -}}

{{- define "mqstore.mounts" -}}
- {name: config, mountPath: /etc/mqstore/config, readOnly: true}
- {name: shards, mountPath: /etc/mqstore/shards, readOnly: true}
- {name: tokens, mountPath: /etc/mqstore/tokens, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "mqstore.volumes" -}}
- name: config
  configMap: {name: {{ include "mqstore.fullname" . }}-config}
- name: shards
  configMap: {name: {{ include "mqstore.fullname" . }}-shards}
- name: tokens
  secret: # each is needed: a pod waits for a key that the Secret lacks
    secretName: {{ include "mqstore.secret" . | quote }}
    defaultMode: 0440
    items: [{key: admin, path: admin}, {key: produce, path: produce}, {key: consume, path: consume}, {key: system, path: system}]
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{/* Called with (dict "root" $ "port" NAME). */}}
{{- define "mqstore.probes" -}}
startupProbe:
  httpGet: {path: /healthz/startup, port: {{ .port }}}
  {{- toYaml .root.Values.probes.startup | nindent 2 }}
readinessProbe:
  httpGet: {path: /healthz/serving, port: {{ .port }}}
  {{- toYaml .root.Values.probes.readiness | nindent 2 }}
livenessProbe:
  httpGet: {path: /healthz/live, port: {{ .port }}}
  {{- toYaml .root.Values.probes.liveness | nindent 2 }}
{{- end -}}

{{/*
Node selector, tolerations and spread of a pod. Called with (dict "root" $ "component" NAME), for
replicas with "number" too: those of a shard are spread.
*/}}
{{- define "mqstore.placement" -}}
{{- $selector := include "mqstore.selector" . -}}
{{- $isReplicated := and (hasKey . "number") (gt (int .root.Values.replicas) 1) -}}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologyKeys }}
topologySpreadConstraints:
  {{- range . }}
  - maxSkew: 1
    topologyKey: {{ . | quote }}
    whenUnsatisfiable: {{ ternary $.root.Values.replicaSpread "ScheduleAnyway" $isReplicated }}
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
        {{- if $isReplicated }}
        mqstore/shard: {{ $.number | quote }}
        {{- end }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* A number in digits: helm reads every number of a file as a float, and prints 1e+06. */}}
{{- define "mqstore.number" -}}
{{ if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end -}}

{{/* NAME = VALUE of a settings file, which is read as Java reads properties. */}}
{{- define "mqstore.setting" -}}
{{- $text := include "mqstore.number" .value -}}
{{- if not (regexMatch "^[ -~]*$" $text) -}}
{{- fail (printf "setting %s has a character that is not printable ASCII: %q" .name $text) -}}
{{- end -}}
{{ .name }} = {{ regexReplaceAll "^ " ($text | replace "\\" "\\\\") "\\ " }}
{{- end -}}

{{/*
The number of a pod's shard: its ordinal, or with replicas that of its StatefulSet. Called with
(dict "root" $ "number" SHARD).
*/}}
{{- define "mqstore.shardEnv" -}}
{{- $isReplicated := gt (int .root.Values.replicas) 1 -}}
- name: MQSTORE_SHARD
  {{- if $isReplicated }}
  value: {{ .number | quote }}
  {{- else }}
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}
  {{- end }}
- {name: MQSTORE_STORE_HOST, value: "{{ .root.Values.storeHost.network }}.$(MQSTORE_SHARD):{{ .root.Values.storeHost.port }}"}
- name: MQSTORE_BROKER_NAME
  {{- if $isReplicated }}
  value: {{ include "mqstore.fullname" .root }}-shard-{{ .number }}
  {{- else }}
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- end }}
{{- end -}}

{{/*
Names that a shard's pods may have, joined by spaces: those of the most replicas that there may be, so
that a change of their number restarts none. Called with (dict "root" $ "number" SHARD).
*/}}
{{- define "mqstore.replicaPods" -}}
{{- range $replica := until 9 -}}
{{- if $replica }} {{ end -}}
{{ include "mqstore.fullname" $.root }}-shard-{{ $.number }}-{{ $replica }}
{{- end -}}
{{- end -}}

{{/* Election of a shard's leader. Called with (dict "root" $ "number" SHARD). */}}
{{- define "mqstore.replicaEnv" -}}
{{- $shard := printf "%s-shard-%d" (include "mqstore.fullname" .root) (int .number) -}}
- {name: MQSTORE_ELECTION_LEASE, value: "kubernetes:{{ $shard }}"}
- {name: MQSTORE_FOUNDING_REPLICA, value: {{ $shard }}-0}
- name: MQSTORE_REPLICA_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: MQSTORE_REPLICA_HOST
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: MQSTORE_REPLICA_PODS, value: {{ include "mqstore.replicaPods" . }}}
- {name: MQSTORE_REPLICAS_FILE, value: /etc/mqstore/shards/replicas}
- {name: MQSTORE_REPLICA_SECRET_FILE, value: /etc/mqstore/replicas/secret}
{{- if include "mqstore.replicaTls" .root }}
- {name: MQSTORE_HA_TLS_CERT, value: /etc/mqstore/replica-tls/tls.crt}
- {name: MQSTORE_HA_TLS_KEY, value: /etc/mqstore/replica-tls/tls.key}
- {name: MQSTORE_HA_TLS_CA, value: /etc/mqstore/replica-tls/ca.crt}
{{- end }}
{{- end -}}

{{/* Secret by which replicas prove themselves to each other. */}}
{{- define "mqstore.replicaSecret" -}}
{{ .Values.replicaSecret | default (printf "%s-replicas" (include "mqstore.fullname" .)) }}
{{- end -}}

{{/*
Secret with the certificates of replicas; empty without TLS. The chart issues them for a release that
begins: replicas with TLS and replicas without do not connect to each other, and a rollout has both. Not
for slaves of RocketMQ, which know no TLS.
*/}}
{{- define "mqstore.replicaTls" -}}
{{- if .Values.replicaTlsSecret -}}
{{- .Values.replicaTlsSecret -}}
{{- else if not (or .Values.replicaSecret (hasKey .Values.settings "haAllowedSlaves")) -}}
{{- $secret := include "mqstore.replicaSecret" . -}}
{{- $set := printf "%s-shard-" (include "mqstore.fullname" .) -}}
{{- $isRunning := false -}}
{{- range $name, $pods := include "mqstore.installedPods" . | fromJson -}}
{{- $isRunning = or $isRunning (and (hasPrefix $set $name) (gt (int $pods) 0)) -}}
{{- end -}}
{{- $known := dig "data" dict (lookup "v1" "Secret" .Release.Namespace $secret | default dict) -}}
{{- if or (hasKey $known "tls.crt") (not $isRunning) -}}
{{- $secret -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Called with (dict "root" $ "of" ingress|gateway): hosts with a service. */}}
{{- define "mqstore.requireHosts" -}}
{{- $values := get .root.Values .of -}}
{{- if not (or $values.writerHost $values.queryHost $values.coordinatorHost) }}
{{- fail (printf "%s.enabled needs a host: writerHost, queryHost or coordinatorHost" .of) }}
{{- end }}
{{- if and $values.coordinatorHost (not .root.Values.coordinator.enabled) }}
{{- fail (printf "%s.coordinatorHost needs coordinator.enabled" .of) }}
{{- end }}
{{- end -}}

{{/*
An upgrade must not hide messages: of shards that go, of replicas that go, or in volumes whose claims
have other names. Rendering without a cluster (helm template, a dry run of the client) finds nothing and
refuses nothing.
*/}}
{{- define "mqstore.requireKeptMessages" -}}
{{- include "mqstore.requireNamedVolumes" . -}}
{{- include "mqstore.requireVolumeSize" . -}}
{{- include "mqstore.requireTokens" . -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- include "mqstore.requireKeptReplicas" . -}}
{{- end -}}
{{- include "mqstore.requireKeptShards" . -}}
{{- end -}}

{{/* Numbers of pods of the StatefulSets in the namespace, by name, in JSON. */}}
{{- define "mqstore.installedPods" -}}
{{- $found := dict -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
{{- $_ := set $found .metadata.name (int .spec.replicas) -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/*
The claims of one replica and of several have different names, so StatefulSets of the other kind would
begin with empty volumes.
*/}}
{{- define "mqstore.requireNamedVolumes" -}}
{{- $set := printf "%s-shard" (include "mqstore.fullname" .) -}}
{{- $isReplicated := gt (int .Values.replicas) 1 -}}
{{- $claims := dict -}}
{{- range (lookup "v1" "PersistentVolumeClaim" .Release.Namespace "").items -}}
{{- $_ := set $claims .metadata.name true -}}
{{- end -}}
{{- $other := ternary $set (printf "%s-0" $set) $isReplicated -}}
{{- $isOther := gt (int (get (include "mqstore.installedPods" . | fromJson) $other)) 0 -}}
{{- range $shard := until (int .Values.shards) -}}
{{- $one := hasKey $claims (printf "store-%s-%d" $set $shard) -}}
{{- $first := hasKey $claims (printf "store-%s-%d-0" $set $shard) -}}
{{- $isOther = or $isOther (ternary (and $one (not $first)) (and $first (not $one)) $isReplicated) -}}
{{- end -}}
{{- if $isOther -}}
{{- $count := int .Values.replicas -}}
{{- fail (printf "replicas: %d would begin with empty volumes, as the claims of one replica and of several have different names. Run `kubectl mqstore replicas %d`, which stops the shards and gives the volume of each shard's first replica to a claim of the new name, and then upgrade" $count $count) -}}
{{- end -}}
{{- end -}}

{{/*
Kubernetes changes no size in a StatefulSet and replies "Forbidden"; kubectl mqstore grow makes the
StatefulSet anew.
*/}}
{{- define "mqstore.requireVolumeSize" -}}
{{- $prefix := printf "%s-shard" (include "mqstore.fullname" .) -}}
{{- range (lookup "apps/v1" "StatefulSet" .Release.Namespace "").items -}}
{{- if or (eq .metadata.name $prefix) (hasPrefix (printf "%s-" $prefix) .metadata.name) -}}
{{- $set := .metadata.name -}}
{{- range .spec.volumeClaimTemplates -}}
{{- $size := dig "resources" "requests" "storage" "" .spec -}}
{{- if and $size (ne $size $.Values.persistence.size) -}}
{{- fail (printf "persistence.size is %s, and the volumes of %s have %s. Set persistence.size=%s, as after `kubectl mqstore grow`; to enlarge them run `kubectl mqstore grow SIZE` first, and then upgrade with this size" $.Values.persistence.size $set $size $size) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Without one of its keys a Secret leaves a role without a token, and the services without theirs. */}}
{{- define "mqstore.requireTokens" -}}
{{- with .Values.auth.existingSecret -}}
{{- $found := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- if $found -}}
{{- range list "admin" "produce" "consume" "system" -}}
{{- if not (hasKey (dig "data" dict $found) .) -}}
{{- fail (printf "auth.existingSecret: Secret %s has no key %s; it needs admin, produce, consume and system, a token each" $.Values.auth.existingSecret .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A replica that is in sync stays in each shard. */}}
{{- define "mqstore.requireKeptReplicas" -}}
{{- $installed := include "mqstore.installedPods" . | fromJson -}}
{{- range $shard := until (int .Values.shards) -}}
{{- $set := printf "%s-shard-%d" (include "mqstore.fullname" $) $shard -}}
{{- if gt (int (get $installed $set)) (int $.Values.replicas) -}}
{{- $lease := lookup "coordination.k8s.io/v1" "Lease" $.Release.Namespace $set -}}
{{- $given := dig "metadata" "annotations" "mqstore/in-sync" "" $lease -}}
{{- $kept := list -}}
{{- range $name := splitList " " $given | compact -}}
{{- $pod := first (splitList "/" $name) -}}
{{- if lt (int (trimPrefix (printf "%s-" $set) $pod)) (int $.Values.replicas) -}}
{{- $kept = append $kept $pod -}}
{{- end -}}
{{- end -}}
{{- if not $kept -}}
{{- fail (printf "replicas: %d removes every replica of shard %d that has all messages (in sync: %s). Wait until another one is in sync: kubectl get lease %s -o yaml" (int $.Values.replicas) $shard ($given | default "none") $set) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Shards go once `kubectl mqstore scale` has removed them, or abandonShards names them. */}}
{{- define "mqstore.requireKeptShards" -}}
{{- $name := printf "%s-shard" (include "mqstore.fullname" .) -}}
{{- $installed := include "mqstore.installedPods" . | fromJson -}}
{{- $running := int (get $installed $name) -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- range $shard := until 250 -}}
{{- if gt (int (get $installed (printf "%s-%d" $name $shard))) 0 -}}
{{- $running = add1 $shard -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $given := list -}}
{{- range .Values.abandonShards -}}
{{- $given = append $given (toString (int .)) -}}
{{- end -}}
{{- $lost := list -}}
{{- range $shard := untilStep (int .Values.shards) (int $running) 1 -}}
{{- if not (has (toString $shard) $given) -}}
{{- $lost = append $lost (toString $shard) -}}
{{- end -}}
{{- end -}}
{{- if $lost -}}
{{- fail (printf "shards: %d removes shard %s, and its messages can no longer be read. Remove empty shards with `kubectl mqstore scale %d`, which checks them, and then upgrade. To give up the messages of these shards set abandonShards={%s}" (int .Values.shards) (join ", " $lost) (int .Values.shards) (join "," $lost)) -}}
{{- end -}}
{{- end -}}

{{/* Peers that may call the services. */}}
{{- define "mqstore.clients" -}}
- podSelector: {matchLabels: {mqstore/client: "true"}}
{{- with concat .Values.networkPolicy.clients .Values.networkPolicy.metrics }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Egress to DNS. */}}
{{- define "mqstore.dns" -}}
- to:
    - namespaceSelector: {}
      podSelector: {matchLabels: {k8s-app: kube-dns}}
  ports: [{port: 53, protocol: UDP}, {port: 53}]
{{- end -}}

{{/* Egress to the API server. */}}
{{- define "mqstore.apiServer" -}}
- to:
    {{- range .Values.networkPolicy.apiServer.cidrs }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  ports:
    {{- range .Values.networkPolicy.apiServer.ports }}
    - {port: {{ . }}}
    {{- end }}
{{- end -}}
