process STREAMER_MATCH {
    tag "$meta.id"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(reads)
    path dictionary
    val k

    output:
    tuple val(meta), path("*.tsv.gz"), emit: table
    path "versions.yml"              , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    streamer match \\
        ${reads} \\
        --dictionary ${dictionary} \\
        -k ${k} \\
        --threads ${task.cpus} \\
        --quiet \\
        ${args} \\
        -o ${prefix}.tsv.gz

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        streamer: \$(streamer --version | sed 's/^streamer //')
    END_VERSIONS
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    echo "" | gzip > ${prefix}.tsv.gz

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        streamer: \$(streamer --version | sed 's/^streamer //')
    END_VERSIONS
    """
}
