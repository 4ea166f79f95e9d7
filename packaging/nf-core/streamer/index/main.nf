process STREAMER_INDEX {
    tag "$meta.id"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(fasta)
    path subtract
    val k

    output:
    tuple val(meta), path("*.idx"), emit: index
    path "versions.yml"           , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: '--target-by file'
    def prefix = task.ext.prefix ?: "${meta.id}"
    def others = subtract instanceof List ? subtract : [subtract]
    def minus = others.collect { "--subtract ${it}" }.join(' ')
    """
    streamer index \\
        ${fasta} \\
        -k ${k} \\
        ${minus} \\
        ${args} \\
        -o ${prefix}.idx

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        streamer: \$(streamer --version | sed 's/^streamer //')
    END_VERSIONS
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.idx

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        streamer: \$(streamer --version | sed 's/^streamer //')
    END_VERSIONS
    """
}
